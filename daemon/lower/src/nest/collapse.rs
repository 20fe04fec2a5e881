//! Loop order and loop merging: the same body over as few loops as its addresses allow, contiguous ones innermost.

use crate::nest::affine::{Affine, exact_div};
use crate::nest::body::{Body, Expr, Inst};
use flambeau_ir::dim::Dim;
use std::cmp::Ordering;

/// Reorders loops by stride, merges what is contiguous, and chooses the row of a kernel without reductions.
pub fn collapse(body: &mut Body) {
    drop_rows_of_nothing(body);
    let reduces = has_rows(body);
    drop_unit_loops(body);
    reorder(body, reduces);
    merge(body);
    if !reduces {
        body.outer = body.loops.len().saturating_sub(1);
    }
    refresh(body, reduces);
}

/// Applies `change` to every address.
fn addresses(body: &mut Body, mut change: impl FnMut(&mut Affine)) {
    for inst in &mut body.insts {
        if let Expr::Load(_, at) | Expr::LoadIf(_, _, at, _) = &mut inst.expr {
            change(at);
        }
    }
    body.writes.iter_mut().for_each(|w| change(&mut w.at));
}

fn drop_unit_loops(body: &mut Body) {
    let keep: Vec<bool> = body.loops.iter().enumerate().map(|(l, e)| !e.is(1) || indexed(body, l)).collect();
    if keep.iter().all(|k| *k) {
        return;
    }
    let place = |l: usize| keep[..l].iter().filter(|k| **k).count();
    addresses(body, |at| {
        at.terms.retain(|(l, _)| keep[*l]);
        at.terms.iter_mut().for_each(|(l, _)| *l = place(*l));
    });
    renumber(body, place);
    body.outer = place(body.outer);
    let mut kept = keep.iter();
    body.loops.retain(|_| *kept.next().unwrap_or(&true));
}

fn renumber(body: &mut Body, place: impl Fn(usize) -> usize) {
    for inst in &mut body.insts {
        if let Expr::Index(l) = &mut inst.expr {
            *l = place(*l);
        }
    }
}

fn indexed(body: &Body, id: usize) -> bool {
    body.insts.iter().any(|i| i.expr == Expr::Index(id))
}

/// Larger strides first, by the first address that tells two loops apart: writes, then reads.
fn reorder(body: &mut Body, reduces: bool) {
    let mut ranked: Vec<Affine> = Vec::new();
    if reduces {
        ranked.extend(loads(&body.insts));
        ranked.extend(body.writes.iter().map(|w| w.at.clone()));
    } else {
        ranked.extend(body.writes.iter().map(|w| w.at.clone()));
        ranked.extend(loads(&body.insts));
    }
    let compare = |a: &usize, b: &usize| {
        ranked
            .iter()
            .map(|at| by_stride(&at.coefficient(*a), &at.coefficient(*b)))
            .find(|o| *o != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..body.loops.len()).collect();
    let split = if reduces { body.outer } else { 0 };
    insertion_sort(&mut order[..split], compare);
    insertion_sort(&mut order[split..], compare);
    if order.windows(2).all(|w| w[0] < w[1]) {
        return;
    }
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
    addresses(body, |at| {
        at.terms.iter_mut().for_each(|(l, _)| *l = place[*l]);
        at.terms.sort_by_key(|(l, _)| *l);
    });
    renumber(body, |l| place[l]);
    body.loops = order.iter().map(|l| body.loops[*l].clone()).collect();
}

/// Stable, and safe for comparisons that are no total order (strides of which some cannot be compared).
fn insertion_sort(items: &mut [usize], compare: impl Fn(&usize, &usize) -> Ordering) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && compare(&items[at - 1], &items[at]) == Ordering::Greater {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

fn loads(insts: &[Inst]) -> Vec<Affine> {
    let address = |i: &Inst| match &i.expr {
        Expr::Load(_, at) | Expr::LoadIf(_, _, at, _) => Some(at.clone()),
        _ => None,
    };
    insts.iter().filter_map(address).collect()
}

fn by_stride(a: &Dim, b: &Dim) -> Ordering {
    match (a.as_const(), b.as_const()) {
        _ if a == b => Ordering::Equal,
        (Some(0), _) | (_, Some(0)) => Ordering::Equal,
        (Some(a), Some(b)) => b.abs().cmp(&a.abs()),
        _ if exact_div(a, b).is_some() => Ordering::Less,
        _ if exact_div(b, a).is_some() => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// Merges neighbours `a, b` where every address has `stride(a) = stride(b) * extent(b)`.
fn merge(body: &mut Body) {
    let mut at = 0;
    while at + 1 < body.loops.len() {
        let boundary = at + 1 == body.outer && has_rows(body);
        let extent = body.loops[at + 1].clone();
        let fits = |a: &Affine| a.coefficient(at) == a.coefficient(at + 1).mul(&extent);
        let all = loads(&body.insts).iter().chain(body.writes.iter().map(|w| &w.at)).all(fits);
        if boundary || !all || indexed(body, at) || indexed(body, at + 1) {
            at += 1;
            continue;
        }
        addresses(body, |a| {
            a.terms.retain(|(l, _)| *l != at);
            a.terms.iter_mut().for_each(|(l, _)| *l -= usize::from(*l > at));
        });
        renumber(body, |l| l - usize::from(l > at));
        let outer = body.loops.remove(at);
        body.loops[at] = outer.mul(&extent);
        body.outer -= usize::from(at < body.outer);
    }
}

/// Whether outer points and rows are told apart: by reductions, or as some writes are once per outer point, and would be left
/// out where rows are empty.
fn has_rows(body: &Body) -> bool {
    let has_both = body.writes.iter().any(|w| w.outer) && body.writes.iter().any(|w| !w.outer);
    has_both || body.insts.iter().any(|i| matches!(i.expr, Expr::Reduce(..)))
}

/// Removes the loops of a row whose reductions nothing reads.
fn drop_rows_of_nothing(body: &mut Body) {
    if body.writes.iter().all(|w| w.outer) && !has_rows(body) {
        body.loops.truncate(body.outer);
    }
}

/// Recomputes what depends on the row after its loops changed.
fn refresh(body: &mut Body, reduces: bool) {
    let outer = body.outer;
    let mut row = Vec::with_capacity(body.insts.len());
    for inst in &body.insts {
        let moves = |at: &Affine| at.terms.iter().any(|(l, _)| *l >= outer);
        row.push(match &inst.expr {
            Expr::Reduce(..) => false,
            Expr::Index(l) => *l >= outer,
            Expr::Load(_, at) => moves(at),
            Expr::LoadIf(_, _, at, _) if moves(at) => true,
            other => other.operands().iter().any(|o| row[*o]),
        });
    }
    body.insts.iter_mut().zip(&row).for_each(|(i, r)| i.row = *r);
    if !reduces {
        body.writes.iter_mut().for_each(|w| w.outer = false);
    }
}
