//! What both gates do with who somebody is: take it out of a request, and tell it to a peer.

use access::User;
use http::header::{HeaderMap, HeaderName};
use peering::forward::{ForwardedUser, UnsendableUser};
use smallvec::SmallVec;

/// Removes headers.
pub fn remove_headers(headers: &mut HeaderMap, is_unwanted: impl Fn(&str) -> bool) {
    let unwanted: SmallVec<[HeaderName; 8]> =
        headers.keys().filter(|name| is_unwanted(name.as_str())).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
}

/// A user as a peer is told.
pub fn to_forwarded_user(user: &User) -> Result<ForwardedUser, UnsendableUser> {
    let User { name, uid, groups, extra } = user;
    let extra = extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (&**key, &**value)));
    ForwardedUser::new(name, uid, groups.iter().map(|group| &**group), extra)
}
