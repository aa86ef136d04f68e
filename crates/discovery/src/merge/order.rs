//! Merges several partial orders into one.

mod strongly_connected;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use strongly_connected::strongly_connected;

/// Orders the numbers below `count` so that the order within every chain is kept, unless chains contradict each other.
///
/// Numbers are names, ranked by the tie-break; each occurs in some chain, at most once per chain. Among the numbers
/// without remaining predecessors the smallest comes next. Numbers in a cycle form a strongly connected component; it
/// is placed as a whole, and within it the smallest number that leads a chain comes next. A contradiction therefore
/// reorders only the numbers that take part in it.
///
/// The result is stable: adding it as a further chain, with all the chains or some of them, yields the same result.
/// Components stay within the former ones, which are contiguous in the result; the result's own next number is the
/// only one that can lead all its chains, and was the smallest of more leaders before.
pub(super) fn topological_order(chains: &[Vec<usize>], count: usize) -> Vec<usize> {
    let Linearization { ordered, has_cycle } = linearize(chains, count);
    if !has_cycle {
        return ordered;
    }
    let components = strongly_connected(chains, count);
    let mut component_of = vec![0; count];
    for (component, members) in components.iter().enumerate() {
        members.iter().for_each(|number| component_of[*number] = component);
    }
    let mut chains_across: Vec<Vec<usize>> = vec![Vec::new(); chains.len()];
    let mut chains_within: Vec<Vec<Vec<usize>>> = vec![Vec::new(); components.len()];
    for (chain, chains_across) in chains.iter().zip(&mut chains_across) {
        // A chain cannot leave a component and return: what lies between would belong to the component.
        for stretch in chain.chunk_by(|a, b| component_of[*a] == component_of[*b]) {
            let component = component_of[stretch[0]];
            chains_across.push(component);
            chains_within[component]
                .push(stretch.iter().map(|number| index_of(&components[component], *number)).collect());
        }
    }
    let walk_knot = |component: usize| linearize(&chains_within[component], components[component].len()).ordered;
    let in_order = linearize(&chains_across, components.len()).ordered;
    let mut ordered = Vec::with_capacity(count);
    for component in in_order {
        ordered.extend(walk_knot(component).into_iter().map(|at| components[component][at]));
    }
    ordered
}

fn index_of(sorted: &[usize], number: usize) -> usize {
    sorted.binary_search(&number).expect("a component contains its members")
}

struct Linearization {
    ordered: Vec<usize>,
    /// Set if no number led all its chains at some step.
    has_cycle: bool,
}

/// Repeatedly takes the smallest number that leads all its chains, else the smallest leader, until the chains are
/// empty.
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
    /// The rest of each chain; its first number, the leader, is never done.
    chains: Vec<&'a [usize]>,
    /// For each number, the chains it leads.
    leads: Vec<Vec<usize>>,
    /// For each number, the count of chains that contain it without being led by it.
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

    /// Skips numbers that are done and makes the next one the leader.
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
