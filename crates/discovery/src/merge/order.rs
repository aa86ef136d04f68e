//! One order from many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Orders the numbers below `count` so that every chain's order is kept, as far as the chains do not contradict each other.
///
/// Numbers are names in the order of a tie-break, and each stands in some chain, at most once in the same. Of those that
/// nothing remaining precedes, the smallest comes first. If chains contradict each other and so hold each other up, the smallest
/// that leads a chain comes next: a contradiction reorders what is part of it, and nothing else.
///
/// The result is a chain under which the same chains, or any of them, give the same result again: whatever it puts next is the
/// only one that can lead all its chains, and was the smallest of more leaders before.
pub(super) fn order(chains: &[Vec<usize>], count: usize) -> Vec<usize> {
    let mut run = Run::new(chains, count);
    let mut ordered = Vec::with_capacity(count);
    while let Some(next) = run.next() {
        ordered.push(next);
    }
    ordered
}

struct Run<'a> {
    /// Per chain, what of it is left; its first element, the leader, is never done.
    chains: Vec<&'a [usize]>,
    /// Per number, the chains it leads.
    leads: Vec<Vec<usize>>,
    /// Per number, in how many chains it stands without leading them.
    held: Vec<usize>,
    done: Vec<bool>,
    ready: BinaryHeap<Reverse<usize>>,
}

impl<'a> Run<'a> {
    fn new(chains: &'a [Vec<usize>], count: usize) -> Self {
        let mut held = vec![0; count];
        chains.iter().flatten().for_each(|number| held[*number] += 1);
        let mut run = Self {
            chains: chains.iter().map(Vec::as_slice).collect(),
            leads: vec![Vec::new(); count],
            held,
            done: vec![false; count],
            ready: BinaryHeap::new(),
        };
        (0..chains.len()).for_each(|chain| run.advance(chain));
        run
    }

    fn next(&mut self) -> Option<usize> {
        let next = match self.ready.pop() {
            Some(Reverse(next)) => next,
            None => self.chains.iter().filter_map(|chain| chain.first()).copied().min()?,
        };
        self.done[next] = true;
        for chain in std::mem::take(&mut self.leads[next]) {
            self.advance(chain);
        }
        Some(next)
    }

    /// Passes over what is done, and lets the next number lead.
    fn advance(&mut self, chain: usize) {
        let rest = &mut self.chains[chain];
        while rest.first().is_some_and(|number| self.done[*number]) {
            *rest = &rest[1..];
        }
        let Some(&leader) = rest.first() else { return };
        self.leads[leader].push(chain);
        self.held[leader] -= 1;
        if self.held[leader] == 0 {
            self.ready.push(Reverse(leader));
        }
    }
}

#[cfg(test)]
mod tests;
