//! IP addresses, ranges of addresses and URLs.

use std::net::{IpAddr, Ipv4Addr};

use super::Field;

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
/// From this feature gate on, old fields refuse what other software reads in another way.
const STRICT_GATE: &str = "StrictIPCIDRValidation";

impl Field<'_> {
    /// An address in a field that is older than the strict rules.
    pub(crate) fn legacy_ip(self) -> Option<IpAddr> {
        self.ip_in(self.is_enabled(STRICT_GATE))
    }

    /// An address in its canonical form.
    pub(crate) fn canonical_ip(self) {
        let errors = self.error_count();
        let Some(address) = self.ip_in(true).filter(|_| self.error_count() == errors) else { return };
        if address.to_string() != self.text() {
            self.invalid_text(format!("must be in canonical form (\"{address}\")"));
        }
    }

    fn ip_in(self, is_strict: bool) -> Option<IpAddr> {
        let Some(address) = parse_ip(self.text()) else {
            self.invalid_text(NOT_AN_IP);
            return None;
        };
        if is_strict {
            if self.text().parse::<IpAddr>().is_err() {
                self.invalid_text("must not have leading 0s");
            }
            if is_mapped(address) {
                self.invalid_text("must not be an IPv4-mapped IPv6 address");
            }
        }
        Some(address)
    }

    /// A range in a field that is older than the strict rules.
    pub(crate) fn legacy_cidr(self) -> Option<(IpAddr, u8)> {
        self.cidr_in(self.is_enabled(STRICT_GATE))
    }

    /// A range in its canonical form.
    pub(crate) fn canonical_cidr(self) {
        let errors = self.error_count();
        let Some((address, bits)) = self.cidr_in(true).filter(|_| self.error_count() == errors) else { return };
        let canonical = format!("{}/{bits}", first_address(address, bits));
        if canonical != self.text() {
            self.invalid_text(format!("must be in canonical form (\"{canonical}\")"));
        }
    }

    /// An address and the length of its network's prefix, in canonical form.
    pub(crate) fn interface_address(self) {
        let Some((address, bits)) = parse_cidr(self.text()) else {
            return self.invalid_text("must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
        };
        let canonical = match address.to_canonical() {
            IpAddr::V4(address) if bits > 32 => format!("{address}/{}", bits - 96),
            address @ (IpAddr::V4(_) | IpAddr::V6(_)) => format!("{address}/{bits}"),
        };
        if canonical != self.text() {
            self.invalid_text(format!("must be in canonical form (\"{canonical}\")"));
        }
    }

    fn cidr_in(self, is_strict: bool) -> Option<(IpAddr, u8)> {
        let Some((address, bits)) = parse_cidr(self.text()) else {
            self.invalid_text(NOT_A_RANGE);
            return None;
        };
        if is_strict {
            let (text, length) = self.text().split_once('/').unwrap_or((self.text(), ""));
            if text.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
                self.invalid_text("must not have leading 0s in IP or prefix length");
            } else if is_mapped(address) {
                self.invalid_text("must not have an IPv4-mapped IPv6 address");
            } else if address != first_address(address, bits) {
                self.invalid_text("must not have bits set beyond the prefix length");
            }
        }
        Some((address, bits))
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// An address as older releases read it: numbers of IPv4 may begin with zeros.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

/// An address and the length of the range's prefix.
pub(crate) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_ip(address)?;
    if length.is_empty() || length.len() > 3 || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = length.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// The first address of a range.
pub(crate) fn first_address(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

/// True if a range contains an address.
pub(crate) fn range_contains((first, bits): (IpAddr, u8), address: IpAddr) -> bool {
    first.is_ipv4() == address.is_ipv4() && first_address(first, bits) == first_address(address, bits)
}
