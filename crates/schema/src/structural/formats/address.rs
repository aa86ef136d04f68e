//! Host names, IP addresses, networks and MAC addresses.

use std::net::Ipv6Addr;

use super::{matches, pattern};

/// Labels of letters, digits, symbols and inner dashes; a top-level domain of letters.
pub(super) fn is_hostname(text: &str) -> bool {
    const OUTER: &str = r"[a-zA-Z0-9\p{S}\p{L}]";
    let labels = pattern!(&format!(
        r"^({OUTER}((-?[a-zA-Z0-9\p{{S}}\p{{L}}]{{0,62}})?)|({OUTER}(([a-zA-Z0-9-\p{{S}}\p{{L}}]{{0,61}}{OUTER})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
    ));
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && matches(labels, text)
}

/// An address with a dot; zeros may lead its numbers.
pub(super) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && (is_sloppy_ipv4(text) || is_sloppy_ipv6(text))
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let max = match (is_sloppy_ipv4(address), is_sloppy_ipv6(address)) {
        (true, _) => 32,
        (false, true) => 128,
        (false, false) => return false,
    };
    sloppy_number(length, 10).is_some_and(|length| length <= max)
}

/// The largest number that Kubernetes reads in addresses.
const NUMBER_MAX: u32 = 0xFF_FFFF;

/// A number with any count of leading zeros.
fn sloppy_number(text: &str, radix: u32) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.chars().try_fold(0_u32, |number, c| {
        let number = number * radix + c.to_digit(radix)?;
        (number < NUMBER_MAX).then_some(number)
    })
}

fn is_sloppy_ipv4(text: &str) -> bool {
    let parts = text.split('.');
    parts.clone().count() == 4 && parts.into_iter().all(|part| sloppy_number(part, 10).is_some_and(|n| n <= 255))
}

fn is_sloppy_ipv6(text: &str) -> bool {
    let (head, tail) = match text.split_once("::") {
        Some((head, tail)) => (head, Some(tail)),
        None => (text, None),
    };
    let head_size = match (head, tail) {
        ("", None) => return false,
        ("", Some(_)) => Some(0),
        (head, tail) => group_count(head, tail.is_none()),
    };
    let tail_size = match tail {
        None | Some("") => Some(0),
        Some(tail) => group_count(tail, true),
    };
    match (head_size, tail_size, tail) {
        (Some(head), Some(_), None) => head == 8,
        (Some(head), Some(tail), Some(_)) => head + tail < 8,
        _ => false,
    }
}

/// How many groups of 16 bits these are; an IPv4 address may be the last two.
fn group_count(text: &str, may_end_in_ipv4: bool) -> Option<usize> {
    let mut count = 0;
    let mut groups = text.split(':').peekable();
    while let Some(group) = groups.next() {
        if may_end_in_ipv4 && groups.peek().is_none() && is_sloppy_ipv4(group) {
            return Some(count + 2);
        }
        sloppy_number(group, 16).filter(|number| *number <= 0xFFFF)?;
        count += 1;
    }
    Some(count)
}

/// 6, 8 or 20 bytes: pairs of digits with colons or dashes between them, or fours with dots.
pub(super) fn is_mac(text: &str) -> bool {
    let (separator, width) = match (text.as_bytes().get(2), text.as_bytes().get(4)) {
        (Some(b':'), _) => (':', 2),
        (Some(b'-'), _) => ('-', 2),
        (_, Some(b'.')) => ('.', 4),
        _ => return false,
    };
    let is_group = |group: &str| group.len() == width && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let groups = text.split(separator);
    matches!(groups.clone().count() * width / 2, 6 | 8 | 20) && groups.into_iter().all(is_group)
}
