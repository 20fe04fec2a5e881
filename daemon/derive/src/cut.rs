//! The cheapest cut of a graph: a maximum flow, by shortest augmenting paths in levels (Dinic 1970).

use std::collections::VecDeque;

/// More than all that is cut.
pub const ENDLESS: u64 = u64::MAX / 4;

struct Edge {
    to: usize,
    left: u64,
}

/// A network; each edge has its reverse after it.
pub struct Network {
    edges: Vec<Edge>,
    of: Vec<Vec<usize>>,
}

impl Network {
    /// Without edges.
    pub fn new(nodes: usize) -> Network {
        Network { edges: Vec::new(), of: vec![Vec::new(); nodes] }
    }

    /// Adds an edge.
    pub fn add(&mut self, from: usize, to: usize, capacity: u64) {
        for (from, to, left) in [(from, to, capacity), (to, from, 0)] {
            self.of[from].push(self.edges.len());
            self.edges.push(Edge { to, left });
        }
    }

    /// Fills it; then says of each node whether `sink` is still reached from it: the cut nearest to `sink` is between those
    /// from which it is not and those from which it is.
    pub fn cut(mut self, source: usize, sink: usize) -> Vec<bool> {
        while let Some(levels) = self.levels(source, sink) {
            let mut next = vec![0; self.of.len()];
            while self.augment(source, sink, &levels, &mut next) {}
        }
        let mut reaches = vec![false; self.of.len()];
        let mut todo = vec![sink];
        reaches[sink] = true;
        while let Some(node) = todo.pop() {
            flambeau_ir::bounds::check_time();
            for edge in &self.of[node] {
                let from = self.edges[*edge].to;
                // The reverse of an edge stands beside it.
                if !reaches[from] && self.edges[edge ^ 1].left > 0 {
                    reaches[from] = true;
                    todo.push(from);
                }
            }
        }
        reaches
    }

    /// Distances from the source, over edges with something left.
    fn levels(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.of.len()];
        levels[source] = 0;
        let mut todo = VecDeque::from([source]);
        while let Some(node) = todo.pop_front() {
            flambeau_ir::bounds::check_time();
            for edge in self.of[node].iter().map(|at| &self.edges[*at]).filter(|edge| edge.left > 0) {
                if levels[edge.to] == usize::MAX {
                    levels[edge.to] = levels[node] + 1;
                    todo.push_back(edge.to);
                }
            }
        }
        (levels[sink] != usize::MAX).then_some(levels)
    }

    /// Fills one path, if there is one.
    fn augment(&mut self, source: usize, sink: usize, levels: &[usize], next: &mut [usize]) -> bool {
        let mut path: Vec<usize> = Vec::new();
        let mut node = source;
        while node != sink {
            flambeau_ir::bounds::check_time();
            let onward = |at: &usize| {
                let edge = &self.edges[*at];
                edge.left > 0 && levels[edge.to] == levels[node] + 1
            };
            match self.of[node][next[node]..].iter().position(onward) {
                Some(skipped) => {
                    next[node] += skipped;
                    path.push(self.of[node][next[node]]);
                    node = self.edges[self.of[node][next[node]]].to;
                }
                None => {
                    next[node] = self.of[node].len();
                    let Some(back) = path.pop() else { return false };
                    node = self.edges[back ^ 1].to;
                    next[node] += 1;
                }
            }
        }
        let least = path.iter().map(|at| self.edges[*at].left).min().unwrap_or(0);
        for at in path {
            self.edges[at].left -= least;
            self.edges[at ^ 1].left += least;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_cut_is_the_nearest_to_the_sink() {
        // 0 -> 1 -> 2 -> 3 with 5, 3, 3; and 0 -> 2 with 1.
        let mut network = Network::new(4);
        for (from, to, capacity) in [(0, 1, 5), (1, 2, 3), (2, 3, 4), (0, 2, 1)] {
            network.add(from, to, capacity);
        }
        assert_eq!(network.cut(0, 3), [false, false, false, true]);
        let mut network = Network::new(4);
        for (from, to, capacity) in [(0, 1, 5), (1, 2, 3), (2, 3, 9)] {
            network.add(from, to, capacity);
        }
        assert_eq!(network.cut(0, 3), [false, false, true, true]);
    }
}
