//! The status document as tables for people: what is not well comes first.

use super::verdict::{AgentStatus, Document, FleetStatus, ObjectStatus, Verdict};
use crate::output::{Paint, clean};

/// The whole text.
pub fn render(document: &Document, paint: Paint) -> String {
    let mut out = String::new();
    if let Some(held) = &document.held {
        let way_out = "to publish it as it is: scalwsctl confirm, with the --state of this command";
        out.push_str(&format!("{} {}; {way_out}\n\n", paint.bad("HELD"), clean(held)));
    }
    for fleet in &document.fleets {
        out.push_str(&fleet_text(fleet, paint));
        out.push('\n');
    }
    out.push_str(&objects(&document.objects, paint));
    let empty: Vec<&str> =
        document.backends.iter().filter(|b| b.endpoints.is_empty()).map(|b| b.service.as_str()).collect();
    if !empty.is_empty() {
        out.push_str(&format!("\n{}\n", paint.strong("WITHOUT A READY ENDPOINT (requests get 503)")));
        for service in empty {
            out.push_str(&format!("  {}\n", clean(service)));
        }
    }
    out
}

fn fleet_text(fleet: &FleetStatus, paint: Paint) -> String {
    let mut out = format!("{} {}, generation {}\n", paint.strong("FLEET"), clean(&fleet.name), fleet.generation);
    if fleet.agents.is_empty() {
        out.push_str(&format!("  {}\n", paint.bad("no agent")));
    }
    let rows: Vec<[String; 2]> = fleet.agents.iter().map(|a| [clean(&a.name), agent_state(a, fleet)]).collect();
    let width = rows.iter().map(|[name, _]| name.chars().count()).max().unwrap_or(0);
    for ([name, state], agent) in rows.iter().zip(&fleet.agents) {
        let good = agent.refused.is_empty() && agent.applied == fleet.generation && agent.connected != Some(false);
        let state = if good { paint.good(state) } else { paint.fair(state) };
        out.push_str(&format!("  {name:width$}  {state}\n"));
        for refused in &agent.refused {
            out.push_str(&format!(
                "  {:width$}    {}: {} {}\n",
                "",
                clean(&refused.resource),
                clean(&refused.message),
                paint.faint(&format!("({})", clean(&refused.code)))
            ));
        }
    }
    out
}

fn agent_state(agent: &AgentStatus, fleet: &FleetStatus) -> String {
    let mut parts = Vec::new();
    if agent.connected == Some(false) {
        parts.push("not connected".to_owned());
    }
    parts.push(if agent.applied == fleet.generation {
        "current".to_owned()
    } else {
        format!("applied {} of {}", agent.applied, fleet.generation)
    });
    if !agent.refused.is_empty() {
        parts.push(format!("{} not live", agent.refused.len()));
    }
    parts.join(", ")
}

/// One line per reason; an object that is well has one line without a reason.
pub fn objects(objects: &[ObjectStatus], paint: Paint) -> String {
    let mut sorted: Vec<(Verdict, &ObjectStatus)> = objects.iter().map(|o| (o.verdict(), o)).collect();
    sorted.sort_by(|a, b| (a.0, &a.1.reference).cmp(&(b.0, &b.1.reference)));
    let name = sorted.iter().map(|(_, o)| o.reference.chars().count()).max().unwrap_or(0).max("OBJECT".len());
    let verdict = "unsettled".len();
    let live = sorted.iter().map(|(_, o)| live_on(o).chars().count()).max().unwrap_or(0).max("LIVE".len());
    let title = format!("{:name$}  {:verdict$}  {:live$}  REASON", "OBJECT", "VERDICT", "LIVE");
    let mut out = format!("{}\n", paint.strong(&title));
    if sorted.is_empty() {
        out.push_str("(none)\n");
    }
    for (judged, object) in sorted {
        let word = format!("{:verdict$}", object.word());
        let word = match judged {
            Verdict::Accepted if object.is_not_ours() => paint.faint(&word),
            Verdict::Accepted => paint.good(&word),
            Verdict::Refused => paint.bad(&word),
            Verdict::Degraded | Verdict::Unsettled => paint.fair(&word),
        };
        let reasons = object.reasons();
        let lags = object.liveness.as_ref().is_some_and(|liveness| liveness.live < liveness.of);
        let live_on = format!("{:live$}", live_on(object));
        let live_on = if lags { paint.fair(&live_on) } else { live_on };
        let first = format!("{:name$}  {word}  {live_on}", clean(&object.reference));
        if reasons.is_empty() {
            out.push_str(&format!("{}\n", first.trim_end()));
        }
        for (place, (reason, message)) in reasons.iter().enumerate() {
            let head = if place == 0 { first.clone() } else { " ".repeat(name + 2 + verdict + 2 + live) };
            out.push_str(&format!("{head}  {}: {}\n", clean(reason), clean(message)));
        }
    }
    out
}

/// On how many of the connected agents an object is live.
fn live_on(object: &ObjectStatus) -> String {
    object.liveness.as_ref().map(|liveness| format!("{}/{}", liveness.live, liveness.of)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_comes_first_and_says_why() {
        let document: Document = serde_json::from_str(
            r#"{"fleets":[{"name":"scalws/default","generation":7,"agents":[
                  {"name":"replica-0","applied":7,"refused":[]},
                  {"name":"replica-1","applied":6,"refused":[{"resource":"fragment/x","code":"invalid","message":"bad regex"}]}]}],
                "objects":[
                  {"ref":"Ingress/a/ok","conditions":[],"events":[],"liveness":{"live":2,"of":2}},
                  {"ref":"Ingress/a/late","liveness":{"live":1,"of":2,"lagging":["replica-1"]}},
                  {"ref":"Ingress/a/other","served":"not ours"},
                  {"ref":"Ingress/b/bad","events":[{"type":"Warning","reason":"Rejected","message":"spec.rules[0]: no\nhost"}]}],
                "backends":[{"service":"a/web:80","endpoints":[]},{"service":"a/api:80","endpoints":["10.0.0.1:80"]}],
                "epoch":3}"#,
        )
        .unwrap();
        let text = render(&document, Paint::plain());
        let wanted = "\
FLEET scalws/default, generation 7
  replica-0  current
  replica-1  applied 6 of 7, 1 not live
               fragment/x: bad regex (invalid)

OBJECT           VERDICT    LIVE  REASON
Ingress/b/bad    refused          Rejected: spec.rules[0]: no\u{fffd}host
Ingress/a/late   accepted   1/2   Lagging: not yet live on replica-1
Ingress/a/ok     accepted   2/2
Ingress/a/other  not ours         NotOurs: its class is none of ours, so another controller or nobody serves it

WITHOUT A READY ENDPOINT (requests get 503)
  a/web:80
";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_held_world_is_said_first_with_the_way_out() {
        let document: Document = serde_json::from_str(r#"{"held":"the folder is not there any more"}"#).unwrap();
        let text = render(&document, Paint::plain());
        let wanted = "HELD the folder is not there any more; to publish it as it is: scalwsctl confirm, with the --state of \
                      this command\n";
        assert!(text.starts_with(wanted), "{text}");
    }
}
