//! One order from many.

mod strongly_connected;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use strongly_connected::strongly_connected;

/// Orders the numbers below `count` so that every chain's order is kept, as far as the chains do not contradict each other.
///
/// Numbers are names in the order of a tie-break, and each stands in some chain, at most once in the same. Of those that
/// nothing remaining precedes, the smallest comes next. Numbers that chains put in a circle form a knot; it stands where its
/// members belong as a whole, and within it the smallest that leads a chain comes next. So a contradiction reorders what takes
/// part in it, and nothing else.
///
/// The result, taken as one more chain, gives itself again with the same chains or any of them: knots stay within the old ones,
/// which are contiguous in it; its own next number is the only one that can lead all its chains, and was the smallest of more
/// leaders before.
pub(super) fn topological_order(chains: &[Vec<usize>], count: usize) -> Vec<usize> {
    let Linearization { ordered, has_cycle: circular } = linearize(chains, count);
    if !circular {
        return ordered;
    }
    let components = strongly_connected(chains, count);
    let mut component_of = vec![0; count];
    for (knot, members) in components.iter().enumerate() {
        members.iter().for_each(|number| component_of[*number] = knot);
    }
    let mut chains_across: Vec<Vec<usize>> = vec![Vec::new(); chains.len()];
    let mut chains_within: Vec<Vec<Vec<usize>>> = vec![Vec::new(); components.len()];
    for (chain, chains_across) in chains.iter().zip(&mut chains_across) {
        // A chain that left a knot and came back would have tied what lies between into it.
        for stretch in chain.chunk_by(|a, b| component_of[*a] == component_of[*b]) {
            let knot = component_of[stretch[0]];
            chains_across.push(knot);
            chains_within[knot].push(stretch.iter().map(|number| index_of(&components[knot], *number)).collect());
        }
    }
    let walk_knot = |knot: usize| linearize(&chains_within[knot], components[knot].len()).ordered;
    let in_order = linearize(&chains_across, components.len()).ordered;
    let mut ordered = Vec::with_capacity(count);
    for knot in in_order {
        ordered.extend(walk_knot(knot).into_iter().map(|at| components[knot][at]));
    }
    ordered
}

fn index_of(sorted: &[usize], number: usize) -> usize {
    sorted.binary_search(&number).expect("a knot holds its members")
}

struct Linearization {
    ordered: Vec<usize>,
    /// Whether chains held each other up.
    has_cycle: bool,
}

/// Takes leaders off the chains until nothing is left: the smallest that leads all its chains, else the smallest leader.
fn linearize(chains: &[Vec<usize>], count: usize) -> Linearization {
    let mut walk = ChainWalk::new(chains, count);
    let mut walked = Linearization { ordered: Vec::with_capacity(count), has_cycle: false };
    loop {
        let ready = walk.ready.pop().map(|Reverse(number)| number);
        walked.has_cycle |= ready.is_none() && walk.leaders().next().is_some();
        let Some(next) = ready.or_else(|| walk.leaders().min()) else { return walked };
        walked.ordered.push(next);
        walk.mark_done(next);
    }
}

struct ChainWalk<'a> {
    /// Per chain, what of it is left; its first number, the leader, is never done.
    chains: Vec<&'a [usize]>,
    /// Per number, the chains it leads.
    leads: Vec<Vec<usize>>,
    /// Per number, in how many chains it stands without leading them.
    blocking_chains: Vec<usize>,
    done: Vec<bool>,
    /// The numbers that lead all their chains.
    ready: BinaryHeap<Reverse<usize>>,
}

impl<'a> ChainWalk<'a> {
    fn new(chains: &'a [Vec<usize>], count: usize) -> Self {
        let mut held = vec![0; count];
        chains.iter().flatten().for_each(|number| held[*number] += 1);
        let mut walk = Self {
            chains: chains.iter().map(Vec::as_slice).collect(),
            leads: vec![Vec::new(); count],
            blocking_chains: held,
            done: vec![false; count],
            ready: BinaryHeap::new(),
        };
        (0..chains.len()).for_each(|chain| walk.advance_chain(chain));
        walk
    }

    fn leaders(&self) -> impl Iterator<Item = usize> {
        self.chains.iter().filter_map(|chain| chain.first().copied())
    }

    fn mark_done(&mut self, number: usize) {
        self.done[number] = true;
        for chain in std::mem::take(&mut self.leads[number]) {
            self.advance_chain(chain);
        }
    }

    /// Passes over what is done, and lets the next number lead.
    fn advance_chain(&mut self, chain: usize) {
        let rest = &mut self.chains[chain];
        while rest.first().is_some_and(|number| self.done[*number]) {
            *rest = &rest[1..];
        }
        let Some(&leader) = rest.first() else { return };
        self.leads[leader].push(chain);
        self.blocking_chains[leader] -= 1;
        if self.blocking_chains[leader] == 0 {
            self.ready.push(Reverse(leader));
        }
    }
}

#[cfg(test)]
mod tests;
