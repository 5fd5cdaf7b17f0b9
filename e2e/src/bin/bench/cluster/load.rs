//! What an API server is asked for, by its own count.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use e2e::replicas::ground::Ground;
use http::Request;

/// Watches that are open and requests that were answered, by resource. The API server's own are among them.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    open: BTreeMap<String, f64>,
    asked: BTreeMap<String, f64>,
}

impl Load {
    /// Now.
    pub(super) fn read(ground: &Ground) -> Result<Load> {
        let text = ground.client.request_text(Request::get("/metrics").body(Vec::new())?);
        let text = ground.runtime.block_on(text).context("the API server's metrics")?;
        let mut load = Load::default();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once('{') else { continue };
            let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let rest = labels.split_once(&format!("{name}=\""))?.1;
                rest.split_once('"').map(|(value, _)| value).filter(|value| !value.is_empty())
            };
            // Without a resource it is a look at health or metrics.
            let Some(resource) = label("resource") else { continue };
            let verb = label("verb").unwrap_or("?");
            let value: f64 = value.trim().parse().unwrap_or_default();
            match name {
                "apiserver_longrunning_requests" if verb == "WATCH" => {
                    *load.open.entry(resource.to_owned()).or_default() += value;
                }
                // A watch is counted when it ends.
                "apiserver_request_total" if verb != "WATCH" => {
                    *load.asked.entry(format!("{verb} {resource}")).or_default() += value;
                }
                _ => {}
            }
        }
        Ok(load)
    }

    /// What came since an earlier look.
    pub(super) fn since(&self, earlier: &Load) -> Load {
        let less = |now: &BTreeMap<String, f64>, then: &BTreeMap<String, f64>| {
            let less = now.iter().map(|(name, value)| (name.clone(), value - then.get(name).unwrap_or(&0.0)));
            less.filter(|(_, value)| *value != 0.0).collect()
        };
        Load { open: less(&self.open, &earlier.open), asked: less(&self.asked, &earlier.asked) }
    }

    /// The watches, for people.
    pub(super) fn watches(&self) -> String {
        let each: Vec<String> = self.open.iter().map(|(resource, count)| format!("{resource} {count}")).collect();
        format!("{}: {}", self.open.values().sum::<f64>(), each.join(", "))
    }

    /// The requests in so many minutes as a rate, for people.
    pub(super) fn requests(&self, minutes: f64) -> String {
        let each: Vec<String> =
            self.asked.iter().map(|(name, count)| format!("{name} {:.0}", count / minutes)).collect();
        format!("{:.0}: {}", self.asked.values().sum::<f64>() / minutes, each.join(", "))
    }
}
