//! The status document as other commands read it, and the verdict on one object that follows from it.

use serde::{Deserialize, Serialize};

/// What `status -o json` prints, as far as it is read here. Other keys are ignored.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Document {
    /// Every fleet with its agents.
    pub fleets: Vec<FleetStatus>,
    /// Every object that has a status.
    pub objects: Vec<ObjectStatus>,
    /// Every Service port that something refers to.
    pub backends: Vec<BackendStatus>,
    /// Why a new world is not published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// One fleet.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct FleetStatus {
    /// Its name.
    pub name: String,
    /// The generation that every agent should have.
    pub generation: u64,
    /// Its agents.
    pub agents: Vec<AgentStatus>,
}

/// One agent.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct AgentStatus {
    /// Its name.
    pub name: String,
    /// The generation it applied.
    pub applied: u64,
    /// What it could not make live.
    pub refused: Vec<RefusedStatus>,
    /// Whether its stream is open; not every document says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
}

/// One resource that is not live.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct RefusedStatus {
    /// `kind/name`.
    pub resource: String,
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

/// One object.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ObjectStatus {
    /// `Kind/namespace/name`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// As in the Gateway API.
    pub conditions: Vec<ConditionStatus>,
    /// The Events that are written for it.
    pub events: Vec<EventStatus>,
    /// What a live controller says of how much is served: `full`, `partly`, `refused` or `not ours`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub served: String,
    /// On how many agents it is live; absent when nothing of it could be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<LivenessStatus>,
}

/// On how many agents an object is live.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct LivenessStatus {
    /// On so many.
    pub live: usize,
    /// Of so many.
    pub of: usize,
    /// The agents that it is not live on yet.
    pub lagging: Vec<String>,
}

/// One condition.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ConditionStatus {
    /// For example `Accepted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// `namespace/gateway#section`, for routes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent: String,
}

/// One Event.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct EventStatus {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// One Service port.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct BackendStatus {
    /// `namespace/name:port`.
    pub service: String,
    /// The addresses that may get traffic now.
    pub endpoints: Vec<String>,
}

/// What `served` says of an object of another controller.
pub const NOT_OURS: &str = "not ours";

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing of it is served.
    Refused,
    /// It is served in part, or something about it is wrong.
    Degraded,
    /// It is not known yet.
    Unsettled,
    /// All is well.
    Accepted,
}

impl Verdict {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Refused => "refused",
            Verdict::Degraded => "degraded",
            Verdict::Unsettled => "unsettled",
            Verdict::Accepted => "accepted",
        }
    }
}

impl ObjectStatus {
    /// The first rule that holds; the rules are those of `e2e/cases/README.md`, section "Verdicts".
    pub fn verdict(&self) -> Verdict {
        let any = |kind: &str, status: &str| self.conditions.iter().any(|c| c.kind == kind && c.status == status);
        let mut accepted = self.conditions.iter().filter(|c| c.kind == "Accepted").peekable();
        let refused = accepted.peek().is_some() && accepted.all(|c| c.status == "False");
        let mut warnings = self.events.iter().filter(|e| e.kind == "Warning").peekable();
        let warned = warnings.peek().is_some();
        // A body that stopped a proxy is withheld everywhere; what that leaves of the object, the controller knows.
        let withheld = self.served == "refused" && self.events.iter().any(|e| e.reason == "Condemned");
        if refused || withheld || warnings.any(|e| matches!(e.reason.as_str(), "Rejected" | "Refused" | "Invalid")) {
            Verdict::Refused
        } else if warned || any("Accepted", "False") || any("ResolvedRefs", "False") || any("PartiallyInvalid", "True")
        {
            Verdict::Degraded
        } else if any("Programmed", "False") || any("Accepted", "Unknown") {
            Verdict::Unsettled
        } else {
            Verdict::Accepted
        }
    }

    /// The verdict in one word for people, who want to know too that nobody asked us to serve the object.
    pub fn word(&self) -> &'static str {
        if self.is_not_ours() { NOT_OURS } else { self.verdict().word() }
    }

    /// Whether it belongs to another controller, or to none.
    pub fn is_not_ours(&self) -> bool {
        self.served == NOT_OURS && self.verdict() == Verdict::Accepted
    }

    /// Why it is not simply accepted: reason and message, each pair once, the worst first.
    pub fn reasons(&self) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> = Vec::new();
        let warnings = self.events.iter().filter(|e| e.kind == "Warning").map(|e| (&e.reason, &e.message));
        let wrong = self.conditions.iter().filter(|c| match c.kind.as_str() {
            "Accepted" | "ResolvedRefs" | "Programmed" => c.status != "True",
            "PartiallyInvalid" | "Conflicted" => c.status == "True",
            _ => false,
        });
        let mut pairs: Vec<_> = warnings.chain(wrong.map(|c| (&c.reason, &c.message))).collect();
        pairs.sort_by_key(|(reason, _)| !matches!(reason.as_str(), "Rejected" | "Refused" | "Invalid"));
        for (reason, message) in pairs {
            let pair = (reason.clone(), message.clone());
            if !out.contains(&pair) {
                out.push(pair);
            }
        }
        if let Some(late) = self.liveness.as_ref().filter(|liveness| liveness.live < liveness.of) {
            out.push(("Lagging".to_owned(), format!("not yet live on {}", late.lagging.join(", "))));
        }
        if self.is_not_ours() {
            let message = "its class is none of ours, so another controller or nobody serves it";
            out.push(("NotOurs".to_owned(), message.to_owned()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> ObjectStatus {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_rules_hold_in_their_order() {
        let cases = [
            (r#"{"events":[{"type":"Warning","reason":"Rejected"}]}"#, Verdict::Refused),
            (r#"{"conditions":[{"type":"Accepted","status":"False"}]}"#, Verdict::Refused),
            (
                r#"{"conditions":[{"type":"Accepted","status":"False"},{"type":"Accepted","status":"True"}]}"#,
                Verdict::Degraded,
            ),
            (r#"{"events":[{"type":"Warning","reason":"PathConflict"}]}"#, Verdict::Degraded),
            (r#"{"served":"refused","events":[{"type":"Warning","reason":"Condemned"}]}"#, Verdict::Refused),
            (r#"{"served":"partly","events":[{"type":"Warning","reason":"Condemned"}]}"#, Verdict::Degraded),
            (r#"{"conditions":[{"type":"ResolvedRefs","status":"False"}]}"#, Verdict::Degraded),
            (r#"{"conditions":[{"type":"PartiallyInvalid","status":"True"}]}"#, Verdict::Degraded),
            (r#"{"conditions":[{"type":"Programmed","status":"False"}]}"#, Verdict::Unsettled),
            (r#"{"conditions":[{"type":"Accepted","status":"Unknown"}]}"#, Verdict::Unsettled),
            (r#"{"events":[{"type":"Normal","reason":"Rejected"}]}"#, Verdict::Accepted),
            (r"{}", Verdict::Accepted),
        ];
        for (json, verdict) in cases {
            assert_eq!(object(json).verdict(), verdict, "{json}");
        }
    }

    #[test]
    fn reasons_come_once_and_the_worst_first() {
        let seen = object(
            r#"{"events":[{"type":"Warning","reason":"A","message":"m"},{"type":"Warning","reason":"A","message":"m"},
                {"type":"Warning","reason":"Rejected","message":"n"},{"type":"Normal","reason":"B"}]}"#,
        );
        let reasons: Vec<String> = seen.reasons().into_iter().map(|(r, m)| format!("{r} {m}")).collect();
        assert_eq!(reasons, ["Rejected n", "A m"]);
    }
}
