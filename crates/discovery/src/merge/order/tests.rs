use expect_test::{Expect, expect};

use super::*;

/// Parses chains of letters; the alphabet is the tie-break.
#[track_caller]
fn check(chains: &[&str], expected: &Expect) {
    let mut letters: Vec<u8> = chains.concat().into_bytes();
    letters.sort_unstable();
    letters.dedup();
    let number_of = |letter: u8| letters.binary_search(&letter).unwrap();
    let numbers: Vec<Vec<usize>> = chains.iter().map(|chain| chain.bytes().map(number_of).collect()).collect();
    let ordered = topological_order(&numbers, letters.len());
    expected.assert_eq(&ordered.iter().map(|number| char::from(letters[*number])).collect::<String>());
    for chain in &numbers {
        assert_eq!(
            topological_order(&[ordered.clone(), chain.clone()], letters.len()),
            ordered,
            "a chain changes the result"
        );
    }
}

#[test]
fn topological_order_interleaves_agreeing_chains() {
    check(&["ABCD", "AXZD", "ZY", "Q"], &expect!["ABCQXZDY"]);
    check(&["CAB"], &expect!["CAB"]);
    check(&["CAB", "CB", "AB"], &expect!["CAB"]);
    check(&[], &expect![""]);
    check(&["", "A", ""], &expect!["A"]);
}

#[test]
fn topological_order_breaks_ties_by_smallest_number() {
    check(&["B", "A", "C"], &expect!["ABC"]);
    check(&["XC", "XA", "XB"], &expect!["XABC"]);
    check(&["CX", "AX", "BX"], &expect!["ABCX"]);
    check(&["MA", "B"], &expect!["BMA"]);
}

#[test]
fn topological_order_keeps_cycles_in_position() {
    check(&["AB", "BA"], &expect!["AB"]);
    check(&["ZYXA", "ZXYA"], &expect!["ZXYA"]);
    check(&["AB", "BC", "CA"], &expect!["ABC"]);
    check(&["ZCBA", "ZABC", "ZBYX"], &expect!["ZABCYX"]);
    check(&["BCDA", "ABCD"], &expect!["ABCD"]);
}

#[test]
fn topological_order_keeps_successors_after_cycle() {
    check(&["ZYA", "YZ", "AB"], &expect!["YZAB"]);
    check(&["MXYA", "MYXA", "AC", "B"], &expect!["BMXYAC"]);
}

#[test]
fn topological_order_keeps_cycle_contiguous() {
    check(&["RQP", "PQR", "QRP", "AB", "BA", "BC"], &expect!["ABCPQR"]);
    check(&["SXQR", "SQRX", "RQX", "A"], &expect!["ASQRX"]);
}

#[test]
fn topological_order_does_not_recurse_on_long_chains() {
    let forwards: Vec<usize> = (0..100_000).collect();
    let backwards: Vec<usize> = (0..100_000).rev().collect();
    assert_eq!(topological_order(&[backwards, forwards.clone()], forwards.len()), forwards);
}
