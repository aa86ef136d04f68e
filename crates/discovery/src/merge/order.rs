//! One order from many.

mod knots;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use knots::knots;

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
pub(super) fn order(chains: &[Vec<usize>], count: usize) -> Vec<usize> {
    let Walked { ordered, circular } = walk(chains, count);
    if !circular {
        return ordered;
    }
    let knots = knots(chains, count);
    let mut knot_of = vec![0; count];
    for (knot, members) in knots.iter().enumerate() {
        members.iter().for_each(|number| knot_of[*number] = knot);
    }
    let mut across: Vec<Vec<usize>> = vec![Vec::new(); chains.len()];
    let mut within: Vec<Vec<Vec<usize>>> = vec![Vec::new(); knots.len()];
    for (chain, across) in chains.iter().zip(&mut across) {
        // A chain that left a knot and came back would have tied what lies between into it.
        for stretch in chain.chunk_by(|a, b| knot_of[*a] == knot_of[*b]) {
            let knot = knot_of[stretch[0]];
            across.push(knot);
            within[knot].push(stretch.iter().map(|number| place(&knots[knot], *number)).collect());
        }
    }
    let walk_knot = |knot: usize| walk(&within[knot], knots[knot].len()).ordered;
    let in_order = walk(&across, knots.len()).ordered;
    let mut ordered = Vec::with_capacity(count);
    for knot in in_order {
        ordered.extend(walk_knot(knot).into_iter().map(|at| knots[knot][at]));
    }
    ordered
}

fn place(sorted: &[usize], number: usize) -> usize {
    sorted.binary_search(&number).expect("a knot holds its members")
}

struct Walked {
    ordered: Vec<usize>,
    /// Whether chains held each other up.
    circular: bool,
}

/// Takes leaders off the chains until nothing is left: the smallest that leads all its chains, else the smallest leader.
fn walk(chains: &[Vec<usize>], count: usize) -> Walked {
    let mut walk = Walk::new(chains, count);
    let mut walked = Walked { ordered: Vec::with_capacity(count), circular: false };
    loop {
        let ready = walk.ready.pop().map(|Reverse(number)| number);
        walked.circular |= ready.is_none() && walk.leaders().next().is_some();
        let Some(next) = ready.or_else(|| walk.leaders().min()) else { return walked };
        walked.ordered.push(next);
        walk.finish(next);
    }
}

struct Walk<'a> {
    /// Per chain, what of it is left; its first number, the leader, is never done.
    chains: Vec<&'a [usize]>,
    /// Per number, the chains it leads.
    leads: Vec<Vec<usize>>,
    /// Per number, in how many chains it stands without leading them.
    held: Vec<usize>,
    done: Vec<bool>,
    /// The numbers that lead all their chains.
    ready: BinaryHeap<Reverse<usize>>,
}

impl<'a> Walk<'a> {
    fn new(chains: &'a [Vec<usize>], count: usize) -> Self {
        let mut held = vec![0; count];
        chains.iter().flatten().for_each(|number| held[*number] += 1);
        let mut walk = Self {
            chains: chains.iter().map(Vec::as_slice).collect(),
            leads: vec![Vec::new(); count],
            held,
            done: vec![false; count],
            ready: BinaryHeap::new(),
        };
        (0..chains.len()).for_each(|chain| walk.advance(chain));
        walk
    }

    fn leaders(&self) -> impl Iterator<Item = usize> {
        self.chains.iter().filter_map(|chain| chain.first().copied())
    }

    fn finish(&mut self, number: usize) {
        self.done[number] = true;
        for chain in std::mem::take(&mut self.leads[number]) {
            self.advance(chain);
        }
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
