//! What `up` says when it is live: what is served where, requests to try, how to stop.

use std::path::Path;

use translate::Object;
use translate::objects::{Backend, Ingress};

use super::plan::Plan;
use crate::manifests;
use crate::output::clean;

/// More rows than this are only counted.
const MAX_ROWS: usize = 20;
/// A folder with more files than this is not read again only for the banner.
const MAX_FILES: usize = 1000;
/// How many requests are suggested.
const REQUESTS: usize = 3;

/// One path of one Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    ingress: String,
    tls: bool,
    host: String,
    path: String,
    backend: String,
}

/// Writes it to stdout. `unwell` tells in words how much is not served as it stands in the folder.
pub async fn print(plan: &Plan, unwell: Option<&str>) {
    let folder = plan.manifests.clone();
    let rows = tokio::task::spawn_blocking(move || rows(&folder)).await.ok().flatten();
    plan.log.answer(banner(plan, rows.as_deref(), unwell));
}

/// The rows of every Ingress that the controller would read; nothing when there are too many files.
fn rows(folder: &Path) -> Option<Vec<Row>> {
    if manifests::walk(folder).is_ok_and(|walk| walk.files.len() > MAX_FILES) {
        return None;
    }
    let folder = manifests::read(folder).unwrap_or_default();
    let ingresses = folder.objects().filter_map(|object| match &**object {
        Object::Ingress(ingress) => Some(ingress),
        _ => None,
    });
    Some(ingresses.flat_map(rows_of).collect())
}

fn banner(plan: &Plan, rows: Option<&[Row]>, unwell: Option<&str>) -> String {
    let mut out = format!(
        "\nLive: {} served by {} on port {} (HTTP) and {} (HTTPS), all addresses.\n",
        plan.manifests.display(),
        if plan.replicas == 1 { "1 proxy".to_owned() } else { format!("{} proxies", plan.replicas) },
        plan.http,
        plan.https
    );
    if let Some(unwell) = unwell {
        out.push_str(&format!("\nNot all is well: {unwell}. The status says which and why.\n"));
    }
    match rows {
        None => out.push_str("\n(More files than are listed here.)\n"),
        Some([]) => {
            out.push_str("\nNothing is served yet: there is no Ingress in the folder. Add one; it is live at once.\n")
        }
        Some(rows) => {
            out.push('\n');
            out.push_str(&table(plan, rows));
            let requests = requests(plan, rows);
            if !requests.is_empty() {
                out.push_str("\nTry:\n");
                for request in requests {
                    out.push_str(&format!("  {request}\n"));
                }
            }
        }
    }
    out.push_str(&format!(
        "\nWhat is live and what is not:  scalwsctl status --state {}\nEdit, add or delete a file in the folder: it is live at once.\nStop with Ctrl-C.\n",
        shell(&plan.state.display().to_string())
    ));
    out
}

fn table(plan: &Plan, rows: &[Row]) -> String {
    let urls: Vec<String> = rows.iter().map(|r| format!("{}{}", origin(plan, r, &r.host), r.path)).collect();
    let shown = urls.len().min(MAX_ROWS);
    let width = urls[..shown].iter().map(|u| u.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (row, url) in rows.iter().zip(&urls).take(MAX_ROWS) {
        out.push_str(&format!("  {url:width$}  ->  {}  ({})\n", row.backend, row.ingress));
    }
    if rows.len() > MAX_ROWS {
        out.push_str(&format!("  ... and {} more\n", rows.len() - MAX_ROWS));
    }
    out
}

fn origin(plan: &Plan, row: &Row, host: &str) -> String {
    let host = if host.is_empty() { "*" } else { host };
    match (row.tls, plan.https, plan.http) {
        (true, 443, _) => format!("https://{host}"),
        (true, port, _) => format!("https://{host}:{port}"),
        (false, _, 80) => format!("http://{host}"),
        (false, _, port) => format!("http://{host}:{port}"),
    }
}

/// One request per Ingress first, so that they differ, then further paths.
fn requests(plan: &Plan, rows: &[Row]) -> Vec<String> {
    let mut chosen: Vec<&Row> = Vec::new();
    for row in rows {
        if chosen.len() < REQUESTS && !chosen.iter().any(|c| c.ingress == row.ingress) {
            chosen.push(row);
        }
    }
    for row in rows {
        if chosen.len() < REQUESTS && !chosen.contains(&row) {
            chosen.push(row);
        }
    }
    chosen.into_iter().map(|row| request(plan, row)).collect()
}

fn request(plan: &Plan, row: &Row) -> String {
    let host = match row.host.strip_prefix("*.") {
        Some(rest) => format!("any.{rest}"),
        None if row.host.is_empty() => "localhost".to_owned(),
        None => row.host.clone(),
    };
    let port = if row.tls { plan.https } else { plan.http };
    let url = shell(&format!("{}{}", origin(plan, row, &host), row.path));
    let insecure = if row.tls { "-k " } else { "" };
    if host == "localhost" {
        return format!("curl {insecure}{url}");
    }
    format!("curl {insecure}--resolve {} {url}", shell(&format!("{host}:{port}:127.0.0.1")))
}

/// A word that a shell takes as it is.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn rows_of(ingress: &Ingress) -> Vec<Row> {
    let name = ingress.metadata.key.to_string();
    let secured: Vec<&str> = ingress.spec.tls.iter().flat_map(|tls| &tls.hosts).map(String::as_str).collect();
    let row = |host: &str, path: &str, backend: &Backend| Row {
        ingress: clean(&name),
        tls: secured.iter().any(|s| covers(s, host)),
        host: clean(host),
        path: clean(path),
        backend: clean(&backend_of(ingress, backend)),
    };
    let mut out = Vec::new();
    for rule in &ingress.spec.rules {
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let at = path.path.as_deref().filter(|at| !at.is_empty()).unwrap_or("/");
            out.push(row(rule.host.as_deref().unwrap_or_default(), at, &path.backend));
        }
    }
    out.extend(ingress.spec.default_backend.iter().map(|backend| row("", "/", backend)));
    out
}

fn covers(pattern: &str, host: &str) -> bool {
    pattern.eq_ignore_ascii_case(host)
        || pattern.strip_prefix("*.").is_some_and(|rest| {
            host.split_once('.').is_some_and(|(label, tail)| !label.is_empty() && tail.eq_ignore_ascii_case(rest))
        })
}

fn backend_of(ingress: &Ingress, backend: &Backend) -> String {
    match &backend.service {
        Some(service) => format!("{}/{}:{}", ingress.metadata.namespace(), service.name, service.port),
        None => "(no Service)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::LogFormat;
    use crate::up::log::Log;
    use serde_json::json;

    fn plan() -> Plan {
        Plan {
            programs: "/bin".into(),
            manifests: "/m".into(),
            state: "/s p".into(),
            runtime: "/r".into(),
            http: 80,
            https: 8443,
            replicas: 2,
            echo: true,
            allow_empty: false,
            log: Log::new(LogFormat::Text),
        }
    }

    fn ingress(path: &str) -> Ingress {
        let object = Object::from_value(json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "tls": [{"hosts": ["*.example.com"]}],
                "rules": [
                    {"host": "a.example.com", "http": {"paths": [{
                        "path": path, "pathType": "Exact",
                        "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}},
                    {"host": "*.example.org", "http": {"paths": [{
                        "pathType": "ImplementationSpecific",
                        "backend": {"service": {"name": "web", "port": {"name": "http"}}}}]}}
                ]
            }
        }));
        let Ok(Object::Ingress(ingress)) = object else { panic!("{object:?} is no Ingress") };
        ingress
    }

    #[test]
    fn it_says_what_is_served_where_and_three_requests() {
        let rows = rows_of(&ingress("/x"));
        let text = banner(&plan(), Some(&rows), None);
        for wanted in [
            "https://a.example.com:8443/x  ->  shop/web:80  (shop/web)",
            "http://*.example.org/",
            "curl -k --resolve a.example.com:8443:127.0.0.1 https://a.example.com:8443/x",
            "curl --resolve any.example.org:80:127.0.0.1 http://any.example.org/",
            "scalwsctl status --state '/s p'",
            "Stop with Ctrl-C",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in {text}");
        }
    }

    #[test]
    fn text_from_a_manifest_cannot_leave_its_word() {
        let row = &rows_of(&ingress("/';rm -rf ~;'"))[0];
        assert!(request(&plan(), row).ends_with(r"'https://a.example.com:8443/'\'';rm -rf ~;'\'''"));
    }

    #[test]
    fn an_empty_folder_says_so() {
        assert!(banner(&plan(), Some(&[]), None).contains("no Ingress"));
        let unwell = banner(&plan(), Some(&[]), Some("1 refused, 0 degraded"));
        assert!(unwell.contains("Not all is well: 1 refused, 0 degraded."), "{unwell}");
    }
}
