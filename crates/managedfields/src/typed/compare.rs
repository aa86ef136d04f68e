//! Comparison of two values: which fields were removed, modified and added.

use api::json::JsonObject;
use serde_json::Value;

use super::atom::{Handled, List, MapOf, Type};
use super::go_form::{Form, is_empty_object, zip_fields};
use super::items::indexed_items;
use crate::field_set::{FieldSet, PathElement};

/// The fields in which two values differ. No field is in more than one set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) added: FieldSet,
}

impl Comparison {
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// The comparison without these fields and all below them.
    pub(crate) fn without(self, excluded: &FieldSet) -> Self {
        if excluded.is_empty() || self.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(excluded),
            modified: self.modified.recursive_difference(excluded),
            added: self.added.recursive_difference(excluded),
        }
    }
}

/// Compares two objects of a type.
pub(crate) fn compare(old: &JsonObject, new: &JsonObject, object_type: Type<'_>, form: Form) -> Comparison {
    let Handled::Map(map) = object_type.atom().first() else { return Comparison::default() };
    let mut node = Difference::default();
    Walk { form }.fields(map, (Some(old), Some(new)), &mut node);
    node.below
}

/// The difference of one value, and of all below it.
#[derive(Default)]
struct Difference {
    is_removed: bool,
    is_modified: bool,
    is_added: bool,
    below: Comparison,
}

impl Difference {
    /// Becomes the difference of a child of `parent`.
    fn add_to(self, parent: &mut Comparison, element: impl FnOnce() -> PathElement) {
        let Self { is_removed, is_modified, is_added, below } = self;
        if !(is_removed || is_modified || is_added) && below.is_empty() {
            return;
        }
        let element = element();
        parent.removed.add(element.clone(), is_removed, below.removed);
        parent.modified.add(element.clone(), is_modified, below.modified);
        parent.added.add(element, is_added, below.added);
    }
}

/// Old and new value, at least one of them present.
type Pair<'v> = (Option<&'v Value>, Option<&'v Value>);

#[derive(Clone, Copy)]
struct Walk {
    form: Form,
}

impl Walk {
    fn value(self, pair: Pair<'_>, value_type: Type<'_>) -> Difference {
        let mut node = Difference::default();
        let is_leaf = match pair {
            // Equal JSON is equal in every form.
            (Some(old), Some(new)) if old == new => return node,
            (Some(value), None) | (None, Some(value)) => self.handle(value_type.handled(value), pair, &mut node),
            (Some(old), Some(new)) => {
                let (was, is) = (value_type.handled(old), value_type.handled(new));
                if std::mem::discriminant(&was) != std::mem::discriminant(&is) {
                    self.handle(was, pair, &mut node);
                }
                self.handle(is, pair, &mut node)
            }
            (None, None) => return node,
        };
        if !is_leaf {
            node.is_added |= pair.0.is_none();
            node.is_removed |= pair.1.is_none();
        }
        node
    }

    /// Returns true if the value is a leaf.
    fn handle(self, handled: Handled<'_>, pair: Pair<'_>, node: &mut Difference) -> bool {
        match handled {
            Handled::Scalar(_) => self.leaf(pair, None, node),
            Handled::Map(map) => {
                let objects = (pair.0.and_then(Value::as_object), pair.1.and_then(Value::as_object));
                let is_empty = |object: Option<&JsonObject>| object.is_none_or(|object| self.is_empty(map, object));
                if map.is_atomic || is_empty(objects.0) && is_empty(objects.1) {
                    return self.leaf(pair, Some(handled), node);
                }
                self.fields(map, objects, node);
                false
            }
            Handled::List(list) => {
                let lists = (pair.0.and_then(Value::as_array), pair.1.and_then(Value::as_array));
                let is_empty = |items: Option<&Vec<Value>>| items.is_none_or(Vec::is_empty);
                if list.is_atomic() || is_empty(lists.0) && is_empty(lists.1) {
                    return self.leaf(pair, Some(handled), node);
                }
                let items = (lists.0.map_or(&[][..], Vec::as_slice), lists.1.map_or(&[][..], Vec::as_slice));
                self.items(list, items, node);
                false
            }
        }
    }

    fn is_empty(self, map: MapOf<'_>, object: &JsonObject) -> bool {
        match (self.form, map.struct_type()) {
            (Form::Go, Some(kind)) => is_empty_object(kind, object),
            _ => object.is_empty(),
        }
    }

    fn leaf(self, pair: Pair<'_>, handled: Option<Handled<'_>>, node: &mut Difference) -> bool {
        match pair {
            (Some(old), Some(new)) => node.is_modified |= !self.leaves_equal(old, new, handled),
            (None, _) => node.is_added = true,
            (_, None) => node.is_removed = true,
        }
        true
    }

    fn leaves_equal(self, old: &Value, new: &Value, handled: Option<Handled<'_>>) -> bool {
        let typed = match (self.form, handled) {
            (Form::Go, Some(handled)) => handled,
            _ => return values_equal(old, new),
        };
        match (typed, old, new) {
            (Handled::Map(map), Value::Object(old), Value::Object(new)) => {
                let Some(kind) = map.struct_type() else { return self.maps_equal(map, old, new) };
                let mut is_equal = true;
                zip_fields(kind, (Some(old), Some(new)), |_, field, old, new| {
                    is_equal &= match (old, new) {
                        (Some(old), Some(new)) => self.leaves_equal(old, new, Some(field.handled(new))),
                        _ => false,
                    };
                });
                is_equal
            }
            (Handled::List(list), Value::Array(old), Value::Array(new)) => {
                let equal = |(old, new)| self.leaves_equal(old, new, Some(list.items.handled(new)));
                old.len() == new.len() && old.iter().zip(new).all(equal)
            }
            _ => values_equal(old, new),
        }
    }

    fn maps_equal(self, map: MapOf<'_>, old: &JsonObject, new: &JsonObject) -> bool {
        let Some(values) = map.others() else { return old.len() == new.len() };
        let equal = |((name, old), (new_name, new)): ((&String, &Value), (&String, &Value))| {
            name == new_name && self.leaves_equal(old, new, Some(values.handled(new)))
        };
        old.len() == new.len() && old.iter().zip(new).all(equal)
    }

    fn fields(self, map: MapOf<'_>, (old, new): (Option<&JsonObject>, Option<&JsonObject>), node: &mut Difference) {
        let below = &mut node.below;
        if let (Form::Go, Some(kind)) = (self.form, map.struct_type()) {
            zip_fields(kind, (old, new), |name, field, old, new| {
                self.value((old, new), field).add_to(below, || PathElement::field(name));
            });
            return;
        }
        let is_gone = |name: &String| new.is_none_or(|new| !new.contains_key(name));
        for (name, value) in old.into_iter().flatten().filter(|(name, _)| is_gone(name)) {
            let Some(field) = map.child(name) else { continue };
            self.value((Some(value), None), field).add_to(below, || PathElement::field(name));
        }
        for (name, value) in new.into_iter().flatten() {
            let before = old.and_then(|old| old.get(name));
            if before == Some(value) {
                continue;
            }
            let Some(field) = map.child(name) else { continue };
            self.value((before, Some(value)), field).add_to(below, || PathElement::field(name));
        }
    }

    fn items(self, list: List<'_>, (old, new): (&[Value], &[Value]), node: &mut Difference) {
        let (old, new) = (indexed_items(list, old), indexed_items(list, new));
        let (mut old, mut new) = (old.as_slice(), new.as_slice());
        while let Some(element) = [old.first(), new.first()].into_iter().flatten().map(|(element, _)| element).min() {
            let element = element.clone();
            let (before, after) = (take_equal(&mut old, &element), take_equal(&mut new, &element));
            let item = match (before, after) {
                ([] | [_], [] | [_]) => {
                    let pair = (before.first().map(|(_, item)| *item), after.first().map(|(_, item)| *item));
                    self.value(pair, list.items)
                }
                // Duplicates are one leaf.
                ([_, _, ..], [_, _, ..]) => {
                    let equal = |(one, other): (&(PathElement, &Value), &(PathElement, &Value))| {
                        self.leaves_equal(one.1, other.1, Some(list.items.handled(other.1)))
                    };
                    let is_modified = before.len() != after.len() || !before.iter().zip(after).all(equal);
                    Difference { is_modified, ..Difference::default() }
                }
                ([_, _, ..], _) => {
                    let mut item = match after.first() {
                        Some((_, after)) => self.value((None, Some(after)), list.items),
                        None => Difference::default(),
                    };
                    item.is_removed = true;
                    item
                }
                (_, [_, _, ..]) => {
                    let mut item = match before.first() {
                        Some((_, before)) => self.value((Some(before), None), list.items),
                        None => Difference::default(),
                    };
                    item.is_added = true;
                    item
                }
            };
            item.add_to(&mut node.below, || element);
        }
    }
}

/// Takes the leading items that have this element.
fn take_equal<'i, 'v>(
    items: &mut &'i [(PathElement, &'v Value)],
    element: &PathElement,
) -> &'i [(PathElement, &'v Value)] {
    let count = items.iter().take_while(|(other, _)| other == element).count();
    let (taken, rest) = items.split_at(count);
    *items = rest;
    taken
}

/// Equality of values; `1` equals `1.0`.
pub(crate) fn values_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => one == other,
            _ => one.as_f64() == other.as_f64(),
        },
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| values_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => objects_equal(one, other),
        _ => one == other,
    }
}

/// Equality of objects; `1` equals `1.0`.
pub(crate) fn objects_equal(one: &JsonObject, other: &JsonObject) -> bool {
    let equal = |((name, one), (other_name, other)): ((&String, &Value), (&String, &Value))| {
        name == other_name && values_equal(one, other)
    };
    one.len() == other.len() && one.iter().zip(other).all(equal)
}
