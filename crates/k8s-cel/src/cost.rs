//! Static cost estimation: the range of what an evaluation can cost, from declared sizes. Kubernetes refuses rules whose
//! estimate is too high, so the numbers are part of the API.

mod functions;

use crate::ast::{Ast, Call, Comprehension, ExprId, ExprKind, FoldKind, Literal, MapEntry, Select};
use crate::check::{Checked, Reference};
use crate::decl::{DeclKind, DeclType};
use crate::env::Environment;
use crate::runtime_cost::{LIST, MAP, STRUCT};
use crate::types::Type;
use crate::value::char_count;

/// The least and the most that an evaluation can cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostEstimate {
    /// Least cost.
    pub min: u64,
    /// Most cost; `u64::MAX` if nothing bounds it.
    pub max: u64,
}

type Size = CostEstimate;

impl CostEstimate {
    const UNKNOWN: CostEstimate = CostEstimate { min: 0, max: u64::MAX };

    const fn fixed(value: u64) -> Self {
        Self { min: value, max: value }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scale(self, factor: f64) -> Self {
        Self { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Multiplies and rounds up in floating point, as upstream does.
fn scaled(value: u64, factor: f64) -> u64 {
    const LIMIT: f64 = 18_446_744_073_709_551_616.0;
    let float = value as f64;
    if float > 0.0 && factor > 0.0 && float > LIMIT / factor {
        return u64::MAX;
    }
    let ceil = (float * factor).ceil();
    if ceil >= LIMIT { u64::MAX } else { ceil as u64 }
}

/// Where a value comes from: a way through the declared types, or none.
#[derive(Clone, Copy, Debug)]
enum Path<'e> {
    /// Not reachable from a variable.
    Empty,
    /// Reachable; the declaration is known unless the way left the declared types.
    At(Option<&'e DeclType>),
}

#[derive(Clone, Copy, Debug)]
enum Step<'n> {
    Element,
    Key,
    Index,
    Field(&'n str),
}

/// Sizes of the entries of a list or map.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Size,
    value: Size,
}

fn union_entries(a: Option<Entries>, b: Option<Entries>) -> Option<Entries> {
    let (a, b) = (a?, b?);
    Some(Entries { list: a.list, key: a.key.union(b.key), value: a.value.union(b.value) })
}

struct Local<'e> {
    path: Path<'e>,
    size: Option<Size>,
    entries: Option<Entries>,
}

struct Estimator<'e, 's> {
    ast: &'e Ast<'s>,
    checked: &'e Checked,
    env: &'e Environment,
    paths: Vec<Path<'e>>,
    sizes: Vec<Option<Size>>,
    entries: Vec<Option<Entries>>,
    /// By slot, as the checker numbers them.
    locals: Vec<Local<'e>>,
}

/// Estimates the cost of a checked expression.
pub(crate) fn estimate(ast: &Ast<'_>, checked: &Checked, env: &Environment) -> CostEstimate {
    let count = ast.exprs.len();
    let mut estimator = Estimator {
        ast,
        checked,
        env,
        paths: vec![Path::Empty; count],
        sizes: vec![None; count],
        entries: vec![None; count],
        locals: Vec::new(),
    };
    estimator.cost(ast.root)
}

impl<'e> Estimator<'e, '_> {
    /// The declaration that unknown ways start from: upstream's estimator knows one root only.
    fn root(&self) -> Option<&'e DeclType> {
        self.env.variables.first().map(|variable| &*variable.decl).map(without_optional)
    }

    fn append(&self, path: Path<'e>, step: Step<'_>) -> Path<'e> {
        let decl = match path {
            // The first step takes the place of the variable.
            Path::Empty => return Path::At(self.root()),
            Path::At(decl) => decl,
        };
        Path::At(decl.and_then(|decl| match step {
            Step::Element => decl.element().map(|element| &**element),
            Step::Key => matches!(decl.kind, DeclKind::Map { .. }).then_some(&MAP_KEY),
            Step::Index => None,
            Step::Field(name) => decl.field(name).map(|field| &*field.decl),
        }))
    }

    fn path_size(&self, path: Path<'e>) -> Option<Size> {
        match path {
            Path::At(Some(decl)) if !matches!(decl.kind, DeclKind::Dyn) => {
                Some(Size { min: 0, max: decl.max_elements })
            }
            _ => None,
        }
    }

    fn local(&self, id: ExprId) -> Option<&Local<'e>> {
        match &self.checked.references[id as usize] {
            Reference::Local(slot) => self.locals.get(*slot as usize),
            _ => None,
        }
    }

    fn path(&self, id: ExprId) -> Path<'e> {
        self.local(id).map_or(self.paths[id as usize], |local| local.path)
    }

    fn type_of(&self, id: ExprId) -> &'e Type {
        self.checked.type_of(id)
    }

    /// The size of an expression if anything is known about it.
    fn size(&mut self, id: ExprId) -> Option<Size> {
        if let Some(size) = self.sizes[id as usize] {
            return Some(size);
        }
        if let Some(size) = literal_size(self.ast.kind(id)) {
            return Some(Size::fixed(size));
        }
        if let Some(size) = self.path_size(self.path(id)) {
            self.sizes[id as usize] = Some(size);
            return Some(size);
        }
        if is_scalar(self.type_of(id)) {
            return Some(Size::fixed(1));
        }
        self.local(id).and_then(|local| local.size)
    }

    fn size_or_unknown(&mut self, id: ExprId) -> Size {
        self.size(id).unwrap_or(Size::UNKNOWN)
    }

    fn entries(&self, id: ExprId) -> Option<Entries> {
        self.entries[id as usize].or_else(|| self.local(id).and_then(|local| local.entries))
    }

    fn set_entries(&mut self, id: ExprId, entries: Option<Entries>) {
        if entries.is_some() {
            self.entries[id as usize] = entries;
        }
    }

    fn set_size(&mut self, id: ExprId, size: Option<Size>) {
        if size.is_some() {
            self.sizes[id as usize] = size;
        }
    }

    fn cost(&mut self, id: ExprId) -> CostEstimate {
        match self.ast.kind(id) {
            ExprKind::Invalid | ExprKind::Literal(_) => CostEstimate::default(),
            ExprKind::Ident(_) => self.ident(id),
            ExprKind::Select(select) => self.select(id, select),
            ExprKind::Call(call) => self.call(id, call),
            ExprKind::List { elements, .. } => self.list(id, elements),
            ExprKind::Map(entries) => self.map(id, entries),
            ExprKind::Struct { fields, .. } => {
                fields.iter().fold(CostEstimate::fixed(STRUCT), |sum, field| sum.add(self.cost(field.value)))
            }
            ExprKind::Comprehension(fold) if fold.kind == FoldKind::Bind => self.bind(id, fold),
            ExprKind::Comprehension(fold) => self.comprehension(id, fold),
        }
    }

    fn ident(&mut self, id: ExprId) -> CostEstimate {
        let path = match &self.checked.references[id as usize] {
            Reference::Local(slot) => self.locals.get(*slot as usize).map_or(Path::Empty, |local| local.path),
            Reference::Variable(at) => {
                let env = self.env;
                Path::At(Some(without_optional(&env.variables[*at as usize].decl)))
            }
            _ => Path::At(self.root()),
        };
        self.paths[id as usize] = path;
        CostEstimate::fixed(1)
    }

    fn select(&mut self, id: ExprId, select: &Select<'_>) -> CostEstimate {
        if !matches!(self.checked.references[id as usize], Reference::None) {
            return self.ident(id);
        }
        let mut sum = self.cost(select.operand);
        if select.test_only {
            return sum;
        }
        if matches!(self.type_of(select.operand), Type::Map(_) | Type::Object(_) | Type::Message(_) | Type::Named(_)) {
            sum = sum.add(CostEstimate::fixed(1));
        }
        self.paths[id as usize] = self.append(self.path(select.operand), Step::Field(&select.field));
        sum
    }

    fn call(&mut self, id: ExprId, call: &Call<'_>) -> CostEstimate {
        if call.function == "dyn" {
            let argument = call.args[0];
            let cost = self.cost(argument);
            let (size, entries) = (self.size(argument), self.entries(argument));
            self.set_size(id, size);
            self.set_entries(id, entries);
            return cost.add(CostEstimate::fixed(1));
        }
        let args: Vec<CostEstimate> = call.args.iter().map(|&arg| self.cost(arg)).collect();
        let Some(reference) = self.checked.call(id) else { return CostEstimate::default() };
        let target = if reference.namespaced { None } else { call.target };
        let mut sum = CostEstimate::default();
        if let Some(target) = target {
            sum = sum.add(self.cost(target));
        }
        let mut total = CostEstimate { min: u64::MAX, max: 0 };
        let mut result: Option<Size> = None;
        let checked = self.checked;
        for overload in checked.overloads(reference) {
            let function = functions::Call {
                id,
                name: reference.declaration.name,
                overload: overload.id,
                target,
                args: &call.args,
            };
            let (cost, size) = self.function(&function, &args);
            total = total.union(cost);
            if let Some(size) = size {
                result = Some(result.map_or(size, |result| result.union(size)));
            }
            if matches!(overload.id, "index_list" | "index_map") {
                result = self.entries(call.args[0]).map(|entries| entries.value);
                self.paths[id as usize] = self.append(self.path(call.args[0]), Step::Element);
            }
            if result.is_none() {
                result = self.size(id);
            }
        }
        self.set_size(id, result);
        sum.add(total)
    }

    fn list(&mut self, id: ExprId, elements: &[ExprId]) -> CostEstimate {
        let mut sum = CostEstimate::fixed(LIST);
        let mut value = Size { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
        for &element in elements {
            sum = sum.add(self.cost(element));
            value = value.union(self.size_or_unknown(element));
        }
        self.set_entries(id, Some(Entries { list: true, key: Size::fixed(1), value }));
        sum
    }

    fn map(&mut self, id: ExprId, entries: &[MapEntry]) -> CostEstimate {
        let mut sum = CostEstimate::fixed(MAP);
        let none = Size { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let (mut key, mut value) = (none, none);
        for entry in entries {
            sum = sum.add(self.cost(entry.key)).add(self.cost(entry.value));
            key = key.union(self.size_or_unknown(entry.key));
            value = value.union(self.size_or_unknown(entry.value));
        }
        self.set_entries(id, Some(Entries { list: false, key, value }));
        sum
    }

    fn push_local(&mut self, init: ExprId) {
        let local = Local { path: self.path(init), size: self.size(init), entries: self.entries(init) };
        self.locals.push(local);
    }

    /// Variables of a loop: keys or indices, and elements.
    fn push_variables(&mut self, fold: &Comprehension<'_>) {
        let entries = self.entries(fold.range);
        let list = entries.map_or_else(|| matches!(self.type_of(fold.range), Type::List(_)), |entries| entries.list);
        let path = self.path(fold.range);
        let mut push = |step, size| {
            let path = self.append(path, step);
            self.locals.push(Local { path, size, entries: None });
        };
        let (key, value) = (entries.map(|e| e.key), entries.map(|e| e.value));
        if fold.var2.is_some() {
            push(if list { Step::Index } else { Step::Key }, key);
            push(Step::Element, value);
        } else if list {
            push(Step::Element, value);
        } else {
            push(Step::Key, key);
        }
    }

    fn comprehension(&mut self, id: ExprId, fold: &Comprehension<'_>) -> CostEstimate {
        let mut sum = self.cost(fold.range).add(self.cost(fold.init));
        self.push_local(fold.init);
        self.push_variables(fold);
        let each = self.cost(fold.condition).add(self.cost(fold.step));
        // The step's entries are asked for before its variables go.
        let step_entries = self.entries[fold.step as usize];
        self.locals.truncate(self.locals.len() - 1 - usize::from(fold.var2.is_some()));
        sum = sum.add(self.cost(fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(fold.range);
        sum = sum.add(count.multiply(each));
        match self.ast.kind(fold.init) {
            ExprKind::Literal(_) => {
                let size = self.size(fold.init);
                self.set_size(id, size);
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.set_size(id, Some(count));
                self.set_entries(id, step_entries);
            }
            _ => {}
        }
        sum
    }

    fn bind(&mut self, id: ExprId, fold: &Comprehension<'_>) -> CostEstimate {
        let mut sum = self.cost(fold.range).add(self.cost(fold.init));
        self.push_local(fold.init);
        sum = sum.add(self.cost(fold.result));
        self.locals.pop();
        let (size, entries) = (self.size(fold.result), self.entries(fold.result));
        self.set_size(id, size);
        self.set_entries(id, entries);
        sum
    }
}

/// Keys of declared maps are strings without a bound of their own, which upstream takes as size 0.
static MAP_KEY: DeclType =
    DeclType { kind: DeclKind::String, max_elements: 0, min_serialized_size: 2, nullable: false };

fn without_optional(decl: &DeclType) -> &DeclType {
    match &decl.kind {
        DeclKind::Optional(inner) => inner,
        _ => decl,
    }
}

fn literal_size(kind: &ExprKind<'_>) -> Option<u64> {
    Some(match kind {
        ExprKind::Literal(Literal::String(text)) => char_count(text) as u64,
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        ExprKind::Literal(_) => 1,
        ExprKind::List { elements, .. } => elements.len() as u64,
        ExprKind::Map(entries) => entries.len() as u64,
        _ => return None,
    })
}

fn is_scalar(value: &Type) -> bool {
    match value {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
