//! Ranges of addresses and ports, and the choice of a free member.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::families::IpFamily;

/// A range of service addresses. Its network address, and the broadcast address of IPv4, are never allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    bits: u8,
}

/// The number of addresses that a bitmap of an IPv6 range covers.
const BITMAP_IPV6_MAX: u128 = 65536;

impl AddressRange {
    /// The family of all addresses.
    pub fn family(&self) -> IpFamily {
        IpFamily::of(self.network)
    }

    /// The network address, which a dry run shows.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// The number of addresses that can be allocated.
    pub fn size(&self) -> u128 {
        let all = self.all_addresses();
        match self.network {
            IpAddr::V4(_) => all.saturating_sub(2),
            IpAddr::V6(_) => all.saturating_sub(1),
        }
    }

    /// The number of addresses that a bitmap covers.
    pub fn bitmap_size(&self) -> usize {
        let size = match self.network {
            IpAddr::V4(_) => self.size(),
            IpAddr::V6(_) => self.all_addresses().min(BITMAP_IPV6_MAX).saturating_sub(1),
        };
        usize::try_from(size).unwrap_or(usize::MAX)
    }

    /// The number of low addresses that are chosen only when all others are taken.
    pub fn static_band(&self) -> u128 {
        match self.all_addresses() {
            ..=16 => 0,
            all => (all / 16).clamp(16, 256),
        }
    }

    /// The offset of an address, from the first that can be allocated.
    pub fn offset(&self, address: IpAddr) -> Option<u128> {
        if IpFamily::of(address) != self.family() {
            return None;
        }
        let offset = number(address).checked_sub(number(self.network))?.checked_sub(1)?;
        (offset < self.size()).then_some(offset)
    }

    /// The address at an offset.
    pub fn address(&self, offset: u128) -> IpAddr {
        let number = number(self.network) + 1 + offset;
        match self.network {
            IpAddr::V4(_) => IpAddr::from(u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()),
            IpAddr::V6(_) => IpAddr::from(number.to_be_bytes()),
        }
    }

    /// True if every address of `other` is in this range.
    pub fn covers(&self, other: &Self) -> bool {
        self.family() == other.family()
            && self.bits <= other.bits
            && masked(number(other.network), self.host_bits()) == number(self.network)
    }

    /// The length of the prefix.
    pub fn prefix_length(&self) -> u8 {
        self.bits
    }

    fn host_bits(&self) -> u32 {
        u32::from(if self.network.is_ipv4() { 32 } else { 128 } - self.bits)
    }

    fn all_addresses(&self) -> u128 {
        1_u128.checked_shl(self.host_bits()).unwrap_or(u128::MAX)
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("invalid CIDR address: {text}");
        let (address, length) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits: u8 = length.parse().map_err(|_| invalid())?;
        let host_bits = if address.is_ipv4() { 32_u8 } else { 128 }.checked_sub(bits).ok_or_else(invalid)?;
        let network = masked(number(address), host_bits.into());
        let network = match address {
            IpAddr::V4(_) => IpAddr::from(u32::try_from(network).map_err(|_| invalid())?.to_be_bytes()),
            IpAddr::V6(_) => IpAddr::from(network.to_be_bytes()),
        };
        Ok(Self { network, bits })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn masked(number: u128, host_bits: u32) -> u128 {
    number & u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

/// A range of node ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    base: u16,
    size: u16,
}

impl PortRange {
    /// kube-apiserver's default: 30000-32767.
    pub const DEFAULT: Self = Self { base: 30000, size: 2768 };

    /// The number of ports.
    pub fn size(&self) -> usize {
        self.size.into()
    }

    /// The number of low ports that are chosen only when all others are taken.
    pub fn static_band(&self) -> usize {
        match self.size() {
            ..=16 => 0,
            size => (size / 32).clamp(16, 128),
        }
    }

    /// The offset of a port; `None` outside of the range.
    pub fn offset(&self, port: i64) -> Option<usize> {
        let offset = usize::try_from(port - i64::from(self.base)).ok()?;
        (offset < self.size()).then_some(offset)
    }

    /// The port at an offset.
    pub fn port(&self, offset: usize) -> i64 {
        i64::from(self.base) + i64::try_from(offset).unwrap_or(i64::MAX)
    }
}

impl FromStr for PortRange {
    type Err = String;

    /// Reads `FIRST-LAST`, `FIRST+COUNT` or one port, as kube-apiserver does.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let invalid = || format!("unable to parse port range: {text}");
        let number = |text: &str| text.parse::<u32>().map_err(|_| invalid());
        let (base, last) = if let Some((first, last)) = text.split_once('-') {
            (number(first)?, number(last)?)
        } else if let Some((first, count)) = text.split_once('+') {
            (number(first)?, number(first)? + number(count)?)
        } else {
            (number(text)?, number(text)?)
        };
        if base > 65535 || last > 65535 {
            return Err(format!("the port range cannot be greater than 65535: {text}"));
        }
        if last < base {
            return Err(format!("end port cannot be less than start port: {text}"));
        }
        let as_port = |number: u32| u16::try_from(number).map_err(|_| invalid());
        Ok(Self { base: as_port(base)?, size: as_port(last - base + 1)? })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.base, u32::from(self.base) + u32::from(self.size) - 1)
    }
}

/// Chooses a free offset below `size`: above the static band first, from a random one on.
pub(super) fn choose(size: u128, band: u128, random: u64, is_taken: impl Fn(u128) -> bool) -> Option<u128> {
    let scan = |first: u128, count: u128| {
        let start = u128::from(random).checked_rem(count)?;
        (0..count).map(|step| first + (start + step) % count).find(|offset| !is_taken(*offset))
    };
    let band = band.min(size);
    scan(band, size - band).or_else(|| scan(0, band))
}
