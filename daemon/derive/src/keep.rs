//! What is kept for a derivative, of all that it reads of the graph: the least memory, by a minimum cut. The rest is computed
//! again, where that costs little: element by element.
//!
//! A region of activation checkpointing keeps nothing of its own. What it gives is computed again, whatever that costs, from
//! what the region takes; only what is drawn there or done in order is kept, or what is made of that element by element.
//! Others want the values of a region as they want any: so each value of a region stands in the network twice.

use crate::cut::{ENDLESS, Network};
use crate::split::{bytes, is_done_again, is_free, is_passed_on, operands};
use flambeau_core::graph::{Core, CoreId, CoreOp};
use flambeau_ir::bounds::check_time;
use std::collections::{BTreeMap, BTreeSet};

/// A value, and the region for whose derivative it is wanted, if it is the region's own.
type Place = (CoreId, Option<u32>);

/// A choice to be made.
pub struct Keep<'a> {
    pub core: &'a Core,
    /// For each value the first that is the same.
    pub same: &'a [CoreId],
    /// Values that leave the graph.
    pub leaves: BTreeSet<CoreId>,
    /// The value behind views, copies and conversions from a smaller type.
    pub behind: &'a dyn Fn(CoreId) -> CoreId,
}

impl Keep<'_> {
    /// Chooses what is kept: what costs least memory, of that what takes the least to compute the rest of it again. `needed`:
    /// what the derivative reads, and the region that it reads it in.
    pub fn choose(&self, needed: &BTreeSet<(CoreId, Option<u32>)>) -> BTreeSet<CoreId> {
        let needed: BTreeSet<Place> = needed.iter().map(|(id, reader)| self.place(*id, *reader)).collect();
        // What is read is kept at no cost where it is there anyway.
        let mut read: BTreeSet<CoreId> =
            needed.iter().filter(|(_, region)| region.is_none()).map(|(id, _)| *id).collect();
        let mut places: BTreeMap<Place, usize> = BTreeMap::new();
        let mut todo: Vec<Place> = needed.iter().copied().collect();
        while let Some(place) = todo.pop() {
            if is_free(&self.core.node(place.0).op) || places.contains_key(&place) {
                continue;
            }
            check_time();
            places.insert(place, places.len());
            for of in self.made_of(place) {
                if place.1.is_some() && of.1.is_none() {
                    read.extend([of.0, self.same[(self.behind)(of.0).0 as usize]]);
                }
                todo.push(of);
            }
        }
        let drawn = self.drawn();
        let (source, sink) = (2 * places.len(), 2 * places.len() + 1);
        let mut network = Network::new(sink + 1);
        for (place, at) in &places {
            check_time();
            network.add(2 * at, 2 * at + 1, self.cost(*place, &read, &drawn));
            if needed.contains(place) {
                network.add(2 * at + 1, sink, ENDLESS);
            }
            if !self.is_made_again(*place) {
                network.add(source, 2 * at, ENDLESS);
            }
            for of in self.made_of(*place).iter().filter_map(|of| places.get(of)) {
                network.add(2 * of + 1, 2 * at, ENDLESS);
            }
        }
        let reaches = network.cut(source, sink);
        let is_cut = |at: &usize| !reaches[2 * at] && reaches[2 * at + 1];
        places.into_iter().filter(|(_, at)| is_cut(at)).map(|((id, _), _)| id).collect()
    }

    /// A value as it is wanted by who stands in this region.
    fn place(&self, id: CoreId, reader: Option<u32>) -> Place {
        let id = self.same[id.0 as usize];
        (id, self.core.region_of(id).filter(|own| reader == Some(*own)))
    }

    /// What a value is computed again from; nothing if it is not.
    fn made_of(&self, place: Place) -> Vec<Place> {
        let (id, region) = place;
        if !self.is_made_again(place) {
            return Vec::new();
        }
        operands(&self.core.node(id).op).into_iter().map(|of| self.place(of, region)).collect()
    }

    fn is_made_again(&self, (id, region): Place) -> bool {
        is_done_again(&self.core.node(id).op) || region.is_some() && self.is_pure(id)
    }

    /// Whether a value of a region is the same when it is computed again.
    fn is_pure(&self, id: CoreId) -> bool {
        match &self.core.node(id).op {
            CoreOp::Extern(call) => call.order.is_none() && !call.draws && !call.in_place,
            CoreOp::Result(of, _) => self.core.region_of(*of) == self.core.region_of(id) && self.is_pure(*of),
            op => !op.is_input(),
        }
    }

    /// For each value, whether it is one of a region that is not computed again, or made of such element by element.
    fn drawn(&self) -> Vec<bool> {
        let mut drawn = Vec::with_capacity(self.core.nodes().len());
        for id in self.core.ids() {
            let region = self.core.region_of(id);
            let op = &self.core.node(id).op;
            let is_own = |of: &CoreId| region == self.core.region_of(*of) && drawn[of.0 as usize];
            drawn.push(region.is_some() && (!self.is_pure(id) || is_done_again(op) && operands(op).iter().any(is_own)));
        }
        drawn
    }

    /// What it costs to keep a value. `read`: what may be kept though it is there anyway.
    fn cost(&self, (id, region): Place, read: &BTreeSet<CoreId>, drawn: &[bool]) -> u64 {
        let node = self.core.node(id);
        let is_there = node.op.is_input() || self.leaves.contains(&id);
        match &node.op {
            CoreOp::Extern(_) => ENDLESS,
            _ if region.is_some() && !drawn[id.0 as usize] => ENDLESS,
            _ if region.is_none() && is_there => {
                if read.contains(&id) {
                    1
                } else {
                    ENDLESS
                }
            }
            op if is_passed_on(op) => ENDLESS,
            _ => bytes(node),
        }
    }
}
