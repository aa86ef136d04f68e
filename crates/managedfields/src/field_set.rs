//! Sets of fields: tries of path elements, whose wire form is `FieldsV1`.
//!
//! A node can be a member and have children; a child does not imply its parent. No operation leaves a node that is
//! neither a member nor has members below it.

mod element;
mod fields_v1;
mod raw;

use std::cmp::Ordering;
use std::fmt;

pub(crate) use element::{ElementError, PathElement, Shown};
pub use fields_v1::FieldSetError;
pub(crate) use fields_v1::check_value;
pub(crate) use raw::{contains_all, has_members, intersects};

/// A set of fields of an object.
#[derive(Clone, Default, PartialEq)]
pub struct FieldSet {
    /// Sorted by element.
    pub(crate) nodes: Vec<FieldNode>,
}

/// A field, and the fields below it.
#[derive(Clone, PartialEq)]
pub(crate) struct FieldNode {
    pub(crate) element: PathElement,
    pub(crate) is_member: bool,
    pub(crate) children: FieldSet,
}

/// Makes a node of the result from those of two sets at an element.
type Join<'j> = &'j dyn Fn(Option<&FieldNode>, Option<&FieldNode>) -> Option<FieldNode>;

impl FieldSet {
    /// The set without fields.
    pub const EMPTY: Self = Self { nodes: Vec::new() };

    /// The set of these paths of field names, such as `["status"]` and `["metadata", "labels"]`.
    pub fn of_names<P: AsRef<[S]>, S: AsRef<str>>(paths: &[P]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let mut node: Option<&mut FieldNode> = None;
            for name in path.as_ref() {
                let place = match node {
                    Some(parent) => &mut parent.children,
                    None => &mut set,
                };
                node = Some(place.node_mut(PathElement::field(name.as_ref())));
            }
            if let Some(node) = node {
                node.is_member = true;
            }
        }
        set
    }

    /// True if the set has no fields.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// True if the field at this path of names is in the set.
    pub fn has_names<S: AsRef<str>>(&self, path: &[S]) -> bool {
        let [first, rest @ ..] = path else { return false };
        let Some(node) = self.get(&PathElement::field(first.as_ref())) else { return false };
        if rest.is_empty() { node.is_member } else { node.children.has_names(rest) }
    }

    pub(crate) fn get(&self, element: &PathElement) -> Option<&FieldNode> {
        let found = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.nodes[found])
    }

    /// The node of an element; a new one must become a member or get children.
    fn node_mut(&mut self, element: PathElement) -> &mut FieldNode {
        let position = match self.nodes.last().map(|last| last.element.cmp(&element)) {
            None | Some(Ordering::Less) => Err(self.nodes.len()),
            Some(Ordering::Equal) => Ok(self.nodes.len() - 1),
            Some(Ordering::Greater) => self.nodes.binary_search_by(|node| node.element.cmp(&element)),
        };
        let position = position.unwrap_or_else(|position| {
            self.nodes.insert(position, FieldNode { element, is_member: false, children: Self::default() });
            position
        });
        &mut self.nodes[position]
    }

    /// Adds a node, or its membership and children to that of the same element.
    pub(crate) fn add(&mut self, element: PathElement, is_member: bool, children: Self) {
        if !is_member && children.is_empty() {
            return;
        }
        let node = self.node_mut(element);
        node.is_member |= is_member;
        if node.children.is_empty() {
            node.children = children;
        } else if !children.is_empty() {
            node.children = node.children.union(&children);
        }
    }

    /// The fields of both sets.
    pub(crate) fn union(&self, other: &Self) -> Self {
        self.combine(other, &|one, other| match (one, other) {
            (Some(node), None) | (None, Some(node)) => Some(node.clone()),
            (Some(one), Some(other)) => Some(FieldNode {
                element: one.element.clone(),
                is_member: one.is_member || other.is_member,
                children: one.children.union(&other.children),
            }),
            (None, None) => None,
        })
    }

    /// The fields that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, &|one, other| {
            let (one, other) = one.zip(other)?;
            FieldNode::new(one, one.is_member && other.is_member, one.children.intersection(&other.children))
        })
    }

    /// The fields of this set that are not in the other.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, &|one, other| {
            let one = one?;
            let Some(other) = other else { return Some(one.clone()) };
            FieldNode::new(one, one.is_member && !other.is_member, one.children.difference(&other.children))
        })
    }

    /// The fields of this set that are not in the other, nor below a field of the other.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, &|one, other| {
            let one = one?;
            match other {
                None => Some(one.clone()),
                Some(other) if other.is_member => None,
                Some(other) => FieldNode::new(one, one.is_member, one.children.recursive_difference(&other.children)),
            }
        })
    }

    /// The fields of this set that have no fields below them.
    #[cfg(test)]
    pub(crate) fn leaves(&self) -> Self {
        self.combine(&Self::EMPTY, &|one, _| {
            let one = one?;
            FieldNode::new(one, one.is_member && one.children.is_empty(), one.children.leaves())
        })
    }

    fn combine(&self, other: &Self, join: Join<'_>) -> Self {
        let mut nodes = Vec::new();
        let (mut ours, mut theirs) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (ours.peek(), theirs.peek()) {
                (None, None) => return Self { nodes },
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.element.cmp(&other.element),
            };
            nodes.extend(match order {
                Ordering::Less => join(ours.next(), None),
                Ordering::Equal => join(ours.next(), theirs.next()),
                Ordering::Greater => join(None, theirs.next()),
            });
        }
    }

    /// Calls `visit` with the path of each field: those of a level first, then those below it.
    pub(crate) fn for_each_path(&self, visit: &mut dyn FnMut(&[PathElement])) {
        self.visit_paths(&mut Vec::new(), visit);
    }

    fn visit_paths(&self, path: &mut Vec<PathElement>, visit: &mut dyn FnMut(&[PathElement])) {
        for node in self.nodes.iter().filter(|node| node.is_member) {
            path.push(node.element.clone());
            visit(path);
            path.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            path.push(node.element.clone());
            node.children.visit_paths(path, visit);
            path.pop();
        }
    }
}

impl FieldNode {
    /// A copy of a node with other content; `None` if it would be empty.
    fn new(node: &Self, is_member: bool, children: FieldSet) -> Option<Self> {
        let is_empty = !is_member && children.is_empty();
        (!is_empty).then(|| Self { element: node.element.clone(), is_member, children })
    }
}

/// One path per line, as in Kubernetes' messages.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        self.for_each_path(&mut |path| lines.push(path.iter().map(PathElement::to_string).collect::<String>()));
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Debug for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

#[cfg(test)]
mod tests;
