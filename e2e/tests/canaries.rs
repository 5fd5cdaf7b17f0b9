//! Keys and passwords of Secrets show up nowhere: not in logs at any level, statuses, files, metrics or debug views.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::http_client::{Connection, get};
use e2e::process::{Options, SOON, Up, scalwsctl, send, until};
use e2e::shop::{Shop, ingress};
use http::StatusCode;
use rustix::process::Signal;

/// A password as people choose them. It is no part of anything else here.
const PASSWORD: &str = "Tr0ub4dor-canary-3";
/// The same in base64, as `data` holds it (RFC 4648, section 4).
const PASSWORD_BASE64: &str = "VHIwdWI0ZG9yLWNhbmFyeS0z";
/// A password that YAML takes for a number, and one too large.
const NUMBER: &str = "73911e7204";
/// The name that the canaries' certificates are for.
const HOST: &str = "canary.example.com";

/// A pair that nobody else has.
struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    fn new() -> Result<Pair> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec![HOST.to_owned()])?.self_signed(&key)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// A Secret with this certificate and a key.
    fn secret(&self, key: &str) -> String {
        let block = |text: &str| text.trim_end().lines().map(|line| format!("    {line}\n")).collect::<String>();
        format!(
            "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: canary-tls, namespace: shop}}\n\
             stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
            block(&self.certificate),
            block(key)
        )
    }

    /// The forms in which the key could show.
    fn canaries(&self) -> Vec<String> {
        self.key.lines().filter(|line| !line.starts_with("-----")).flat_map(forms).collect()
    }
}

/// A text, and what it looks like when its bytes are printed as numbers or as hexadecimal digits.
fn forms(text: &str) -> Vec<String> {
    let numbers: Vec<String> = text.bytes().take(16).map(|b| b.to_string()).collect();
    let digits: String = text.bytes().take(16).map(|b| format!("{b:02x}")).collect();
    vec![text.to_owned(), numbers.join(", "), digits]
}

/// Secrets that are no TLS pair, whole and broken in the ways that people break them.
fn passwords() -> Vec<(String, String)> {
    let bodies = [
        ("plain", format!("stringData: {{password: {PASSWORD}}}")),
        ("encoded", format!("data: {{password: {PASSWORD_BASE64}}}")),
        ("users", format!("stringData: {{auth: 'admin:{{PLAIN}}{PASSWORD}'}}")),
        ("not-base64", format!("data: {{password: '{PASSWORD}!'}}")),
        ("not-a-map", format!("stringData: [{PASSWORD}]")),
        ("not-a-text", format!("stringData: {{password: [{PASSWORD}]}}")),
        ("immutable", format!("immutable: {PASSWORD}")),
        ("type", format!("type: {{of: {PASSWORD}}}")),
        ("open-bracket", format!("stringData: {{password: {PASSWORD}")),
        ("open-quote", format!("stringData: {{password: '{PASSWORD}")),
        ("bad-escape", format!("stringData: {{password: \"{PASSWORD}\\q\"}}")),
        ("colon", format!("stringData:\n  password: a: {PASSWORD}")),
        ("alias", format!("stringData: {{password: *{PASSWORD}}}")),
        ("tag", format!("stringData: {{password: !!int {PASSWORD}}}")),
        ("twice", format!("stringData: {{{PASSWORD}: a, {PASSWORD}: b}}")),
        ("number", format!("stringData: {{password: {NUMBER}}}")),
        ("block", format!("stringData:\n  password: |{PASSWORD}\n")),
        ("tls", format!("type: kubernetes.io/tls\nstringData: {{tls.crt: {PASSWORD}, tls.key: {PASSWORD}}}")),
    ];
    let file = |(name, body): (&str, String)| {
        let head = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: pw-{name}, namespace: shop}}\n");
        (format!("shop/pw-{name}.yaml"), format!("{head}{body}\n"))
    };
    bodies.into_iter().map(file).collect()
}

/// An Ingress with TLS.
fn with_tls(name: &str, host: &str, secret: &str) -> String {
    let tls = format!("spec:\n  tls: [{{hosts: [{host}], secretName: {secret}}}]\n");
    ingress("shop", name, host, "web", 80).replace("spec:\n", &tls)
}

/// Everything that anybody can look at, with the name of the place.
async fn everything(shop: &Shop, up: &Up) -> Result<Vec<(String, String)>> {
    let mut seen = Vec::new();
    let (state, manifests) = (shop.state().display().to_string(), shop.manifests().display().to_string());
    for arguments in [
        vec!["status", "--state", &state],
        vec!["status", "--state", &state, "-o", "json"],
        vec!["wait", "--state", &state, "--timeout", "30s"],
        vec!["lint", &manifests],
        vec!["lint", &manifests, "-o", "json"],
    ] {
        let output = scalwsctl(arguments.iter().copied())?;
        for bytes in [output.stdout, output.stderr] {
            seen.push((arguments.join(" "), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    let calls = ["/metrics", "/v1/status", "/debug/world", "/debug/config", "/debug/agents"];
    views(&up.file().controller_socket, &calls, &mut seen).await?;
    for replica in ["r0", "r1"] {
        let volume = up.file().runtime_dir.join(replica);
        views(&volume.join("admin.sock"), &["/metrics", "/v1/config", "/v1/upstreams"], &mut seen).await?;
        for journal in ["config.jsonl", "members.jsonl"] {
            let path = volume.join(journal);
            seen.push((path.display().to_string(), String::from_utf8_lossy(&fs::read(&path)?).into_owned()));
        }
    }
    for child in up.children() {
        seen.push((format!("arguments of {}", child.pid), child.command.join(" ")));
    }
    Ok(seen)
}

async fn views(socket: &Path, calls: &[&str], seen: &mut Vec<(String, String)>) -> Result<()> {
    let mut connection = Connection::open_unix(socket).await?;
    for call in calls {
        let reply = connection.get("localhost", call).await?;
        ensure!(reply.status == StatusCode::OK && !reply.body.is_empty(), "{call}: {reply:?}");
        seen.push((format!("{} {call}", socket.display()), String::from_utf8_lossy(&reply.body).into_owned()));
    }
    Ok(())
}

/// All files below a folder.
fn files(folder: &Path, seen: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, seen)?;
        } else if path.is_file() {
            seen.push((path.display().to_string(), String::from_utf8_lossy(&fs::read(&path)?).into_owned()));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_and_no_password_of_a_secret_shows_anywhere() -> Result<()> {
    let shop = Shop::copy()?;
    let (first, second) = (Pair::new()?, Pair::new()?);
    shop.write("shop/canary-tls.yaml", &first.secret(&first.key))?;
    shop.write("shop/canary.yaml", &with_tls("canary", HOST, "canary-tls"))?;
    shop.write("shop/as-tls.yaml", &with_tls("as-tls", "as-tls.example.com", "pw-tls"))?;
    for (name, text) in passwords() {
        shop.write(&name, &text)?;
    }
    // The most that the programs can say.
    let options = Options { log: Some("trace".to_owned()), ..Options::default() };
    let up = Up::start(&shop.manifests(), &shop.state(), &options)?;
    up.wait()?;
    let mut served = Connection::open_tls(up.file().https, HOST, &first.certificate).await?;
    assert_eq!(served.get(HOST, "/").await?.echo("service"), "shop/web");

    // Everything that moves keys: another pair, a key of somebody else, text that is no key, a file that is no YAML.
    for (text, served_by) in [
        (second.secret(&second.key), Some(&second)),
        (second.secret(&first.key), None),
        (second.secret(PASSWORD), None),
        (second.secret(&second.key).replace("stringData:", "stringData: ["), None),
        (first.secret(&first.key), Some(&first)),
    ] {
        shop.write("shop/canary-tls.yaml", &text)?;
        up.wait()?;
        if let Some(pair) = served_by {
            let mut connection = Connection::open_tls(up.file().https, HOST, &pair.certificate).await?;
            assert_eq!(connection.get(HOST, "/").await?.echo("service"), "shop/web");
        }
    }
    // Whoever dies gets its keys again.
    for (program, argument) in [("scalws-controller", ""), ("scalws-agent", "replica-0"), ("scalwsd", "/r0")] {
        let victim = up.find(program, argument)?;
        send(victim.pid, Signal::KILL)?;
        until(SOON, &format!("{program} is started again"), || {
            Ok(up.find(program, argument).is_ok_and(|c| c.pid != victim.pid))
        })?;
        up.wait()?;
    }
    assert_eq!(get(up.file().http, "assets.example.com", "/").await?.echo("service"), "shop/assets");

    let mut seen = everything(&shop, &up).await?;
    let mut held = Vec::new();
    files(&up.file().runtime_dir.join("r0/keys"), &mut held)?;
    let mut told = up.status()?;
    let objects = told["objects"].take();
    up.signal(Signal::TERM)?;
    let (status, said) = up.ended(e2e::process::STOP)?;
    ensure!(status.success(), "{status}");
    ensure!(said.contains("TRACE"), "nothing was logged at the level of most words");
    ensure!(!said.contains("panicked"), "a program panicked");
    seen.push(("log".to_owned(), said));
    files(&shop.state(), &mut seen)?;

    // The search finds what is there: the proxies' memory-backed volume is the one place for keys.
    let in_use = first.canaries();
    ensure!(held.iter().any(|(_, text)| text.contains(&in_use[0])), "the search finds no key where one is");
    let text = objects.to_string();
    ensure!(text.contains("pw-not-base64") && text.contains("pw-open-quote.yaml"), "the status names no broken Secret");

    let mut canaries: Vec<String> = [PASSWORD, PASSWORD_BASE64, NUMBER].into_iter().flat_map(forms).collect();
    canaries.extend(first.canaries());
    canaries.extend(second.canaries());
    canaries.push("PRIVATE KEY".to_owned());
    for (place, text) in &seen {
        for canary in &canaries {
            if let Some(at) = text.find(canary.as_str()) {
                let line = text[..at].rsplit('\n').next().unwrap_or_default();
                let begin: String = line.chars().take(300).collect();
                anyhow::bail!("{canary:?} shows in {place}, after: {begin}");
            }
        }
    }
    seen.first().context("nothing was looked at").map(drop)
}
