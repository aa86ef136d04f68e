//! Sets that were written under another schema: a container that is atomic now is owned as a whole.

use super::atom::{Handled, Type};
use crate::field_set::{FieldNode, FieldSet, PathElement, has_members};

/// The set under the current schema; `None` if it is unchanged.
///
/// A container that was atomic and is granular now stays one field of its owner, and so does what the schema does not have.
pub(crate) fn reconcile(set: &FieldSet, set_type: Type<'_>) -> Option<FieldSet> {
    let Handled::Map(map) = set_type.atom().first() else { return None };
    if map.is_free() {
        return None;
    }
    below(set, &|element| match element {
        PathElement::Field(name) => map.child(name),
        PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => map.others(),
    })
}

fn below<'t>(set: &FieldSet, type_of: &dyn Fn(&PathElement) -> Option<Type<'t>>) -> Option<FieldSet> {
    let mut changed: Option<FieldSet> = None;
    for (position, node) in set.nodes.iter().enumerate() {
        let Some(reconciled) = type_of(&node.element).and_then(|node_type| reconcile_node(node, node_type)) else {
            continue;
        };
        changed.get_or_insert_with(|| set.clone()).nodes[position] = reconciled;
    }
    changed
}

fn reconcile_node(node: &FieldNode, node_type: Type<'_>) -> Option<FieldNode> {
    if node.children.is_empty() {
        return None;
    }
    let children = match node_type.atom().first() {
        Handled::Scalar(_) => return None,
        Handled::List(list) if list.is_atomic() => FieldSet::default(),
        Handled::Map(map) if map.is_free() => return None,
        Handled::Map(map) if map.is_atomic => FieldSet::default(),
        Handled::List(list) => below(&node.children, &|_| Some(list.items))?,
        Handled::Map(_) => reconcile(&node.children, node_type)?,
    };
    let is_member = node.is_member || children.is_empty();
    Some(FieldNode { element: node.element.clone(), is_member, children })
}

/// True if a set in its wire form has fields below a container that is atomic: then [`reconcile`] would change it.
pub(crate) fn has_fields_below_atomic(raw: &serde_json::Value, set_type: Type<'_>) -> bool {
    let Some(map) = raw.as_object() else { return false };
    let handled = set_type.atom().first();
    map.iter().any(|(key, below)| {
        let inside = match handled {
            Handled::Scalar(_) => None,
            Handled::Map(map) if map.is_free() => None,
            Handled::Map(map) => match key.strip_prefix("f:") {
                Some(name) => map.child(name),
                None => map.others(),
            },
            Handled::List(list) => Some(list.items),
        };
        let Some(inside) = inside.filter(|_| key != "." && has_members(below)) else { return false };
        match inside.atom().first() {
            Handled::Scalar(_) => false,
            Handled::List(list) if list.is_atomic() => true,
            Handled::Map(map) if map.is_free() => false,
            Handled::Map(map) if map.is_atomic => true,
            Handled::List(_) | Handled::Map(_) => has_fields_below_atomic(below, inside),
        }
    })
}
