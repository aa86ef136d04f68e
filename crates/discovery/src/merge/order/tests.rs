use expect_test::{Expect, expect};

use super::*;

/// Chains of letters, which are their own tie-break.
#[track_caller]
fn check(chains: &[&str], expected: &Expect) {
    let mut letters: Vec<u8> = chains.concat().into_bytes();
    letters.sort_unstable();
    letters.dedup();
    let number_of = |letter: u8| letters.binary_search(&letter).unwrap();
    let numbers: Vec<Vec<usize>> = chains.iter().map(|chain| chain.bytes().map(number_of).collect()).collect();
    let ordered = order(&numbers, letters.len());
    expected.assert_eq(&ordered.iter().map(|number| char::from(letters[*number])).collect::<String>());
    for chain in &numbers {
        assert_eq!(order(&[ordered.clone(), chain.clone()], letters.len()), ordered, "a chain changes the result");
    }
}

#[test]
fn chains_that_agree_are_interleaved_as_they_demand() {
    check(&["ABCD", "AXZD", "ZY", "Q"], &expect!["ABCQXZDY"]);
    check(&["CAB"], &expect!["CAB"]);
    check(&["CAB", "CB", "AB"], &expect!["CAB"]);
    check(&[], &expect![""]);
    check(&["", "A", ""], &expect!["A"]);
}

#[test]
fn what_no_chain_compares_is_in_the_order_of_the_tie_break() {
    check(&["B", "A", "C"], &expect!["ABC"]);
    check(&["XC", "XA", "XB"], &expect!["XABC"]);
    check(&["CX", "AX", "BX"], &expect!["ABCX"]);
    check(&["MA", "B"], &expect!["BMA"]);
}

#[test]
fn contradictions_stay_where_they_are() {
    check(&["AB", "BA"], &expect!["AB"]);
    check(&["ZYXA", "ZXYA"], &expect!["ZXYA"]);
    check(&["AB", "BC", "CA"], &expect!["ABC"]);
    check(&["ZCBA", "ZABC", "ZBYX"], &expect!["ZABCYX"]);
    check(&["BCDA", "ABCD"], &expect!["ABCD"]);
}

#[test]
fn what_follows_a_contradiction_does_not_move_before_it() {
    check(&["ZYA", "YZ", "AB"], &expect!["YZAB"]);
    check(&["MXYA", "MYXA", "AC", "B"], &expect!["BMXYAC"]);
}

#[test]
fn a_contradiction_stays_in_one_piece() {
    check(&["RQP", "PQR", "QRP", "AB", "BA", "BC"], &expect!["ABCPQR"]);
    check(&["SXQR", "SQRX", "RQX", "A"], &expect!["ASQRX"]);
}

#[test]
fn long_chains_need_no_stack() {
    let forwards: Vec<usize> = (0..100_000).collect();
    let backwards: Vec<usize> = (0..100_000).rev().collect();
    assert_eq!(order(&[backwards, forwards.clone()], forwards.len()), forwards);
}
