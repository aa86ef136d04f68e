//! IP addresses and networks, read as Go's `net/netip` reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::EvalError;
use crate::eval::{Evaluated, Invocation};
use crate::function::Function;
use crate::library::Opaque;
use crate::value::Value;

/// An address with the number of bits of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

/// The canonical text.
pub(crate) fn text(address: &IpAddr) -> String {
    address.to_string()
}

pub(crate) fn call<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    match call.function {
        Function::IsIP => Ok(Value::Bool(parse_ip(call.text(0)?).is_ok())),
        Function::IsCIDR => Ok(Value::Bool(parse_cidr(call.text(0)?).is_ok())),
        Function::Cidr => parse_cidr(call.text(0)?).map(|cidr| Value::opaque(Opaque::Cidr(cidr))),
        Function::IpIsCanonical => {
            let raw = call.text(0)?;
            Ok(Value::Bool(text(&parse_ip(raw)?) == raw))
        }
        Function::Ip => match &call.args[0] {
            Value::String(raw) => parse_ip(raw).map(|ip| Value::opaque(Opaque::Ip(ip))),
            _ => Ok(Value::opaque(Opaque::Ip(cidr(call, 0)?.address))),
        },
        Function::ContainsIP | Function::ContainsCIDR | Function::Masked | Function::PrefixLength => network(call),
        _ => address(call),
    }
}

fn cidr(call: &Invocation<'_, '_>, at: usize) -> Result<Cidr, EvalError> {
    match &call.args[at] {
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Cidr(cidr) => Ok(*cidr),
            _ => Err(call.no_overload()),
        },
        Value::String(raw) if at > 0 => parse_cidr(raw),
        _ => Err(call.no_overload()),
    }
}

fn ip(call: &Invocation<'_, '_>, at: usize) -> Result<IpAddr, EvalError> {
    match &call.args[at] {
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Ip(ip) => Ok(*ip),
            _ => Err(call.no_overload()),
        },
        Value::String(raw) if at > 0 => parse_ip(raw),
        _ => Err(call.no_overload()),
    }
}

fn network<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let network = cidr(call, 0)?;
    Ok(match call.function {
        Function::PrefixLength => Value::Int(i64::from(network.bits)),
        Function::Masked => {
            let address = masked(network.address, network.bits);
            Value::opaque(Opaque::Cidr(Cidr { address, bits: network.bits }))
        }
        // Text that is no address is not reported as such.
        Function::ContainsIP => Value::Bool(contains(
            network,
            ip(call, 1).map_err(|error| match &call.args[1] {
                Value::String(_) => EvalError::no_such_overload(),
                _ => error,
            })?,
        )),
        _ => {
            let other = cidr(call, 1)?;
            Value::Bool(network.bits <= other.bits && contains(network, other.address))
        }
    })
}

fn contains(network: Cidr, address: IpAddr) -> bool {
    network.address.is_ipv4() == address.is_ipv4()
        && masked(network.address, network.bits) == masked(address, network.bits)
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

fn address<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let address = ip(call, 0)?;
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xFFC0 == 0xFE80,
    };
    Ok(Value::Bool(match call.function {
        Function::Family => return Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        Function::IsUnspecified => address.is_unspecified(),
        Function::IsLoopback => address.is_loopback(),
        Function::IsLinkLocalUnicast => link_local,
        Function::IsLinkLocalMulticast => match address {
            IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
            IpAddr::V6(v6) => v6.segments()[0] & 0xFF0F == 0xFF02,
        },
        Function::IsGlobalUnicast => {
            let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
            !broadcast && !address.is_unspecified() && !address.is_loopback() && !address.is_multicast() && !link_local
        }
        _ => return Err(call.no_overload()),
    }))
}

fn parse_ip(raw: &str) -> Result<IpAddr, EvalError> {
    let address = parse_address(raw).map_err(|reason| {
        EvalError::new(format!(
            "IP Address {raw:?} parse error during conversion from string: ParseAddr({raw:?}): {reason}"
        ))
    })?;
    let Some(address) = address else {
        return Err(EvalError::new(format!("IP address {raw:?} with zone value is not allowed")));
    };
    if is_mapped(address) {
        return Err(EvalError::new(format!("IPv4-mapped IPv6 address {raw:?} is not allowed")));
    }
    Ok(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Nothing for addresses with a zone.
fn parse_address(raw: &str) -> Result<Option<IpAddr>, String> {
    match raw.find(['.', ':', '%']).map(|at| raw.as_bytes()[at]) {
        Some(b'.') => parse_v4(raw).map(|v4| Some(IpAddr::V4(v4))),
        Some(b':') => {
            let (body, zone) = raw.split_once('%').map_or((raw, None), |(body, zone)| (body, Some(zone)));
            if zone == Some("") {
                return Err("zone must be a non-empty string".into());
            }
            let v6: Ipv6Addr = body.parse().map_err(|_| v6_problem(body))?;
            Ok(zone.is_none().then_some(IpAddr::V6(v6)))
        }
        Some(_) => Err("missing IPv6 address".into()),
        None => Err("unable to parse IP".into()),
    }
}

fn parse_v4(raw: &str) -> Result<Ipv4Addr, String> {
    let fields: Vec<&str> = raw.split('.').collect();
    let mut octets = [0u8; 4];
    for (at, field) in fields.iter().enumerate() {
        if let Some(bad) = field.find(|c: char| !c.is_ascii_digit()) {
            let rest = fields[at..].join(".");
            return Err(format!("unexpected character (at {:?})", &rest[bad..]));
        }
        if field.is_empty() {
            let rest = fields[at..].join(".");
            let shown = if at == 0 { raw.to_owned() } else { format!(".{rest}") };
            return Err(format!("IPv4 field must have at least one digit (at {shown:?})"));
        }
        if field.len() > 1 && field.starts_with('0') {
            return Err("IPv4 field has octet with leading zero".into());
        }
        let value: u8 = field.parse().map_err(|_| "IPv4 field has value >255")?;
        match octets.get_mut(at) {
            Some(octet) => *octet = value,
            None => return Err("IPv4 address too long".into()),
        }
    }
    if fields.len() < 4 { Err("IPv4 address too short".into()) } else { Ok(Ipv4Addr::from(octets)) }
}

fn v6_problem(raw: &str) -> String {
    if let Some(first) = raw.find("::")
        && let Some(second) = raw[first + 2..].find("::")
    {
        return format!("multiple :: in address (at {:?})", &raw[first + 2 + second + 1..]);
    }
    for group in raw.split(':') {
        let at = &raw[group.as_ptr() as usize - raw.as_ptr() as usize..];
        let digits = group.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return format!("each group must have 4 or less digits (at {at:?})");
        }
        if digits == 0 && !group.is_empty() {
            return format!("each colon-separated field must have at least one digit (at {at:?})");
        }
        if digits < group.len() && !group.contains('.') {
            return format!("unexpected character, want colon (at {:?})", &at[digits..]);
        }
    }
    "address string too short".into()
}

fn parse_cidr(raw: &str) -> Result<Cidr, EvalError> {
    const PREFIX: &str = "network address parse error during conversion from string";
    let refuse = |reason: String| EvalError::new(format!("{PREFIX}: {PREFIX}: netip.ParsePrefix({raw:?}): {reason}"));
    let Some((address, bits)) = raw.rsplit_once('/') else { return Err(refuse("no '/'".into())) };
    let address = match parse_address(address) {
        Ok(Some(address)) => address,
        Ok(None) => return Err(refuse("IPv6 zones cannot be present in a prefix".into())),
        Err(reason) => return Err(refuse(format!("ParseAddr({address:?}): {reason}"))),
    };
    let plain =
        !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    if !plain {
        return Err(refuse(format!("bad bits after slash: {bits:?}")));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse::<u8>().ok().filter(|bits| *bits <= most);
    let bits = bits.ok_or_else(|| refuse("prefix length out of range".into()))?;
    if is_mapped(address) {
        return Err(EvalError::new(format!("{PREFIX}: IPv4-mapped IPv6 address {raw:?} is not allowed")));
    }
    Ok(Cidr { address, bits })
}
