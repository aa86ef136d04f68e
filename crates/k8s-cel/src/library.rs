//! Kubernetes' and CEL's function libraries.

pub(crate) mod authorizer;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod net;
pub(crate) mod optionals;
pub(crate) mod quantity;
pub(crate) mod regexes;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod strings;
pub(crate) mod text_format;
pub(crate) mod times;
pub(crate) mod url;

use crate::error::EvalError;

/// A value of a library type.
#[derive(Clone, Debug, PartialEq)]
pub enum Opaque {
    /// `kubernetes.URL`.
    Url(url::Url),
    /// `net.IP`.
    Ip(std::net::IpAddr),
    /// `net.CIDR`.
    Cidr(net::Cidr),
    /// `kubernetes.Quantity`.
    Quantity(quantity::Quantity),
    /// `kubernetes.Semver`.
    Semver(semver::Semver),
    /// `kubernetes.NamedFormat`.
    Format(format::Format),
    /// One of the types of `kubernetes.authorization`.
    Authorization(authorizer::Authorization),
}

impl Opaque {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Opaque::Url(_) => "kubernetes.URL",
            Opaque::Ip(_) => "net.IP",
            Opaque::Cidr(_) => "net.CIDR",
            Opaque::Quantity(_) => "kubernetes.Quantity",
            Opaque::Semver(_) => "kubernetes.Semver",
            Opaque::Format(_) => "kubernetes.NamedFormat",
            Opaque::Authorization(value) => value.type_name(),
        }
    }

    /// Bytes of addresses; other values have no size.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Opaque::Ip(std::net::IpAddr::V4(_)) => Some(4),
            Opaque::Ip(std::net::IpAddr::V6(_)) => Some(16),
            Opaque::Cidr(cidr) => Some(usize::from(cidr.bits).div_ceil(8)),
            _ => None,
        }
    }

    /// The value as text.
    pub fn text(&self) -> String {
        match self {
            Opaque::Url(url) => url.text(),
            Opaque::Ip(ip) => net::text(ip),
            Opaque::Cidr(cidr) => format!("{}/{}", net::text(&cidr.address), cidr.bits),
            Opaque::Quantity(quantity) => quantity.text(),
            Opaque::Semver(semver) => semver.text(),
            Opaque::Format(format) => format.name().to_owned(),
            Opaque::Authorization(_) => String::new(),
        }
    }

    pub(crate) fn equals(&self, other: &Opaque) -> Result<bool, EvalError> {
        match (self, other) {
            (Opaque::Quantity(a), Opaque::Quantity(b)) => Ok(a.compare(b).is_eq()),
            (Opaque::Semver(a), Opaque::Semver(b)) => Ok(a.compare(b).is_eq()),
            (Opaque::Url(a), Opaque::Url(b)) => Ok(a.text() == b.text()),
            (Opaque::Ip(a), Opaque::Ip(b)) => Ok(a == b),
            (Opaque::Cidr(a), Opaque::Cidr(b)) => Ok(a == b),
            (Opaque::Format(a), Opaque::Format(b)) => Ok(a == b),
            _ => Err(EvalError::no_such_overload()),
        }
    }
}
