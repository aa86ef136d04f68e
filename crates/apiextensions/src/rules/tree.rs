//! The part of a schema that has rules, in the form that is evaluated.

use std::sync::{Arc, OnceLock};

use k8s_cel::{DeclType, Environment};
use schema::structural::SchemaNode;

use super::compile::{CompiledRule, NodeEnvironment, compile};
use super::declare::declare;

/// A node of the schema that has rules itself or below. It is walked beside the schema's node.
#[derive(Debug, Default)]
pub(super) struct RuleNode {
    /// The rules of the node itself.
    rules: Option<NodeRules>,
    /// By index into the properties of the schema's node.
    pub(super) properties: Box<[(usize, RuleNode)]>,
    pub(super) items: Option<Box<RuleNode>>,
    pub(super) values: Option<Box<RuleNode>>,
}

/// The rules of one node.
#[derive(Debug)]
pub(super) struct NodeRules {
    /// `None` if expressions cannot see values of the node.
    pub(super) decl: Option<Arc<DeclType>>,
    compiled: OnceLock<CompiledRules>,
}

/// One entry for each rule of the schema's node; the error is the detail for users.
pub(super) type CompiledRules = Box<[Option<Result<CompiledRule, String>>]>;

impl RuleNode {
    fn is_empty(&self) -> bool {
        self.rules.is_none() && self.properties.is_empty() && self.items.is_none() && self.values.is_none()
    }

    pub(super) fn rules(&self) -> Option<&NodeRules> {
        self.rules.as_ref()
    }
}

impl NodeRules {
    /// The compiled rules; compiled by the first object that has a value of the node.
    pub(super) fn compiled(&self, schema: &SchemaNode, base: &Environment) -> Option<&CompiledRules> {
        let decl = self.decl.as_ref()?;
        Some(self.compiled.get_or_init(|| {
            let environment = NodeEnvironment::new(base, decl);
            let rules = schema.validation_rules().iter();
            rules.map(|rule| compile(schema, rule, &environment, &environment)).collect()
        }))
    }
}

#[cfg(test)]
impl NodeRules {
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }
}

/// Builds the tree of a schema's root; `None` if the schema has no rules.
pub(super) fn build(root: &SchemaNode) -> Option<Box<RuleNode>> {
    build_below(root, true)
}

/// Builds the tree of a node, which may be a resource; `None` if no rule is there or below.
pub(super) fn build_below(schema: &SchemaNode, is_resource: bool) -> Option<Box<RuleNode>> {
    if !has_rules(schema) {
        return None;
    }
    let decl = declare(schema, is_resource).map(Arc::new);
    Some(Box::new(node(schema, decl.as_ref())))
}

fn has_rules(schema: &SchemaNode) -> bool {
    !schema.validation_rules().is_empty()
        || schema.items().is_some_and(has_rules)
        || schema.additional_schema().is_some_and(has_rules)
        || schema.properties().iter().any(|property| has_rules(property.schema()))
}

/// Recursion is as deep as the schema, whose depth is limited.
fn node(schema: &SchemaNode, decl: Option<&Arc<DeclType>>) -> RuleNode {
    let rules =
        (!schema.validation_rules().is_empty()).then(|| NodeRules { decl: decl.cloned(), compiled: OnceLock::new() });
    let element = decl.and_then(|decl| decl.element());
    let below = |child: &SchemaNode| Some(Box::new(node(child, element))).filter(|node| !node.is_empty());
    RuleNode {
        rules,
        properties: properties(schema, decl),
        items: schema.items().and_then(below),
        values: schema.additional_schema().and_then(below),
    }
}

fn properties(schema: &SchemaNode, decl: Option<&Arc<DeclType>>) -> Box<[(usize, RuleNode)]> {
    let mut nodes = Vec::new();
    for (index, property) in schema.properties().iter().enumerate() {
        let child = property.schema();
        let child_decl = if k8s_cel::escape(property.name()).is_some() {
            decl.and_then(|decl| decl.property(property.name())).cloned()
        } else {
            // No expression of the object can name the property, but it can have rules of its own.
            declare(child, child.is_embedded_resource()).map(Arc::new)
        };
        // Properties of unknown type are not validated, nor what is below them.
        let Some(child_decl) = child_decl else { continue };
        let child = node(child, Some(&child_decl));
        if !child.is_empty() {
            nodes.push((index, child));
        }
    }
    nodes.into()
}
