//! Strongly connected components of the relation "comes before" that chains define.

/// Returns the components ordered by their smallest members, each sorted; a number in no cycle is its own component.
///
/// Kosaraju's algorithm: two depth-first searches, the second on reversed edges in reverse finishing order.
/// Iterative, because remote servers determine the length of chains.
pub(super) fn strongly_connected(chains: &[Vec<usize>], count: usize) -> Vec<Vec<usize>> {
    let mut after = vec![Vec::new(); count];
    let mut before = vec![Vec::new(); count];
    for pair in chains.iter().flat_map(|chain| chain.windows(2)) {
        after[pair[0]].push(pair[1]);
        before[pair[1]].push(pair[0]);
    }
    let mut seen = vec![false; count];
    let finished: Vec<usize> = (0..count).flat_map(|start| reachable_post_order(start, &after, &mut seen)).collect();
    seen.fill(false);
    let mut components: Vec<Vec<usize>> =
        finished.iter().rev().map(|start| reachable_post_order(*start, &before, &mut seen)).collect();
    components.retain(|component| !component.is_empty());
    components.iter_mut().for_each(|component| component.sort_unstable());
    components.sort_unstable();
    components
}

/// Returns the unseen numbers reachable from a start, in finishing order.
fn reachable_post_order(start: usize, edges: &[Vec<usize>], seen: &mut [bool]) -> Vec<usize> {
    let mut finished = Vec::new();
    let mut path = Vec::new();
    if !std::mem::replace(&mut seen[start], true) {
        path.push((start, edges[start].iter()));
    }
    while let Some((number, rest)) = path.last_mut() {
        match rest.next() {
            Some(&next) if std::mem::replace(&mut seen[next], true) => {}
            Some(&next) => path.push((next, edges[next].iter())),
            None => {
                finished.push(*number);
                path.pop();
            }
        }
    }
    finished
}
