//! Named fields above the members of a set.

use super::atom::{MapOf, Type};
use crate::field_set::{FieldNode, FieldSet, PathElement};

/// The set, and the fields that a type names above its members; keys of maps and items of lists are members already.
pub(crate) fn with_named_fields(set: &FieldSet, set_type: Option<Type<'_>>) -> FieldSet {
    let atom = set_type.map(Type::atom);
    let map: Option<MapOf<'_>> = atom.and_then(|atom| atom.map);
    let nodes = set.nodes.iter().map(|node| {
        let (is_named, below) = match &node.element {
            PathElement::Field(name) => {
                let named = map.and_then(|map| map.field(name));
                (named.is_some(), named.or_else(|| map.and_then(|map| map.others())))
            }
            PathElement::Key(_) => (false, atom.and_then(|atom| atom.list).map(|list| list.items)),
            PathElement::Value(_) | PathElement::Index(_) => (false, None),
        };
        FieldNode {
            element: node.element.clone(),
            is_member: node.is_member || is_named && !node.children.is_empty(),
            children: with_named_fields(&node.children, below),
        }
    });
    FieldSet { nodes: nodes.collect() }
}
