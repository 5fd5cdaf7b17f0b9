//! ReferenceGrant and BackendTLSPolicy.

use serde::Deserialize;

use crate::or_default;

/// `ReferenceGrant.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ReferenceGrantSpec {
    /// Who may refer.
    #[serde(default, deserialize_with = "or_default")]
    pub from: Vec<GrantFrom>,
    /// To what.
    #[serde(default, deserialize_with = "or_default")]
    pub to: Vec<GrantTo>,
}

/// `ReferenceGrant.spec.from[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GrantFrom {
    /// The API group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
}

/// `ReferenceGrant.spec.to[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GrantTo {
    /// The API group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name; every one when not given.
    #[serde(default)]
    pub name: Option<String>,
}

/// `BackendTLSPolicy.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsPolicySpec {
    /// What it is about.
    #[serde(default, deserialize_with = "or_default")]
    pub target_refs: Vec<PolicyTarget>,
    /// How the backend proves itself.
    #[serde(default, deserialize_with = "or_default")]
    pub validation: BackendValidation,
}

/// `BackendTLSPolicy.spec.targetRefs[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTarget {
    /// The API group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The name of the port; every one when not given.
    #[serde(default)]
    pub section_name: Option<String>,
}

/// `BackendTLSPolicy.spec.validation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendValidation {
    /// The name that the certificate must cover, and the SNI.
    #[serde(default, deserialize_with = "or_default")]
    pub hostname: String,
    /// ConfigMaps with authorities.
    #[serde(default, deserialize_with = "or_default")]
    pub ca_certificate_refs: Vec<PolicyTarget>,
    /// `System`, if the system's authorities count.
    #[serde(default)]
    pub well_known_ca_certificates: Option<String>,
}
