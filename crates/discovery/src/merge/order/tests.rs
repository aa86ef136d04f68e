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
