//! Schema of a part of `Pod`, for patch tests.

use std::sync::LazyLock;

use api::GroupVersionKind;
use schema::{SchemaCursor, TypeTable};

const TEXT: &str = "
package test.v1 test/v1
type Container
 args 1 [string]
 env 2 [Env] patch(merge:name)
 image 3 string
 name 4 string
 ports 5 [Port] patch(merge:containerPort)
type EmptyDir
 medium 1 string
type Env
 name 1 string
 value 2 string
type Meta
 annotations 1 {string}
 finalizers 2 [string] patch(merge)
 labels 3 {string}
 name 4 string
 ownerReferences 5 [Owner] patch(merge:uid)
type Owner
 name 1 string
 uid 2 string
kind Pod
 metadata 1 Meta
 spec 2 Spec
type Port
 containerPort 1 int32
 protocol 2 string
type Spec
 containers 1 [Container] patch(merge:name)
 nodeName 2 string
 selector 3 {string} patch(replace)
 strategy 4 Strategy
 tolerations 5 [Toleration]
 volumes 6 [Volume] patch(merge:name)
type Strategy
 rollingUpdate 1 raw
 type 2 string
type Toleration
 key 1 string
type Volume
 emptyDir 1 EmptyDir
 hostPath 2 string
 name 3 string
";

static TABLE: LazyLock<TypeTable> = LazyLock::new(|| TypeTable::parse(TEXT));

pub(crate) fn pod() -> SchemaCursor<'static> {
    let kind = GroupVersionKind { group: "test", version: "v1", kind: "Pod" };
    SchemaCursor::new(TABLE.in_release(36).for_kind(kind).expect("the test table contains the kind"))
}
