//! Pods come and go, 100 changes a second: no request fails, and a removed one gets none 100 ms after the acknowledgement.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e::process::Options;
use e2e::shop::{Shop, ingress};
use e2e::traffic::Target;
use e2e::traffic::scene::{Scene, at_rate, scaled};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const HOST: &str = "rolling.example.com";
const PODS: u32 = 60;
const PORT: u16 = 19_600;
/// Changes per second.
const RATE: u32 = 100;
/// How long after the acknowledgement a request may still come.
const GRACE: Duration = Duration::from_millis(100);

/// When each pod got its requests.
type Log = Arc<Vec<Mutex<Vec<Instant>>>>;

/// A pod that answers whatever the slice says of it, as a real one does until it has ended.
async fn pod(listener: TcpListener, number: usize, log: Log) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let log = Arc::clone(&log);
        let service = service_fn(move |_: Request<Incoming>| {
            log[number].lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{\"service\": \"shop/rolling\"}"))))
            }
        });
        let serve = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // A proxy that closes its connection is no error here.
            let _ended = serve.await;
        });
    }
}

/// What the slice says of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Ready,
    Terminating,
    Gone,
}

impl Phase {
    fn next(self) -> Phase {
        match self {
            Phase::Ready => Phase::Terminating,
            Phase::Terminating => Phase::Gone,
            Phase::Gone => Phase::Ready,
        }
    }
}

fn slice(addresses: &[Ipv4Addr], phases: &[Phase]) -> String {
    let endpoint = |(address, phase): (&Ipv4Addr, &Phase)| {
        let conditions = match phase {
            Phase::Ready => "ready: true, serving: true, terminating: false",
            Phase::Terminating => "ready: false, serving: true, terminating: true",
            Phase::Gone => return None,
        };
        Some(format!("- {{addresses: [{address}], conditions: {{{conditions}}}}}\n"))
    };
    let endpoints: String = addresses.iter().zip(phases).filter_map(endpoint).collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: rolling, namespace: shop}}\nspec: {{ports: [{{port: 80, targetPort: \
         {PORT}}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: rolling-1, namespace: shop, \
         labels: {{kubernetes.io/service-name: rolling}}}}\naddressType: IPv4\nports: [{{port: {PORT}}}]\nendpoints:\n{endpoints}"
    )
}

/// One absence of a pod: it may get no request from the acknowledgement, plus the grace, until it is ready again.
#[derive(Debug)]
struct Absence {
    pod: usize,
    acknowledged: Option<Instant>,
    back: Option<Instant>,
}

/// The first so many removals are acknowledged.
fn acknowledge(absences: &Mutex<Vec<Absence>>, removed: usize, now: Instant) {
    let mut all = absences.lock().unwrap_or_else(PoisonError::into_inner);
    for absence in all.iter_mut().take(removed).filter(|a| a.acknowledged.is_none()) {
        absence.acknowledged = Some(now);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go_and_a_removed_one_gets_no_request() -> Result<()> {
    let shop = Shop::copy()?;
    let web = shop.read("shop/web.yaml")?;
    let first = web.split(['[', ']']).find(|part| part.starts_with("127.")).context("no address")?;
    let [a, b, c, _] = first.parse::<Ipv4Addr>()?.octets();
    let addresses: Vec<Ipv4Addr> = (0..PODS).map(|n| Ipv4Addr::new(a, b, c, 100 + n as u8)).collect();
    let log: Log = Arc::new((0..PODS).map(|_| Mutex::default()).collect());
    for (number, address) in addresses.iter().enumerate() {
        // Before the echo server of `up`, which then leaves the address alone.
        let listener = TcpListener::bind(SocketAddr::from((*address, PORT))).await?;
        tokio::spawn(pod(listener, number, Arc::clone(&log)));
    }
    let mut phases: Vec<Phase> =
        (0..PODS).map(|n| [Phase::Ready, Phase::Terminating, Phase::Gone][n as usize % 3]).collect();
    shop.write("shop/rolling.yaml", &slice(&addresses, &phases))?;
    shop.write("shop/rolling-ingress.yaml", &ingress("shop", "rolling", HOST, "rolling", 80))?;
    let scene =
        Scene::start(shop, &Options::default(), |http, _| vec![Target::http(http, HOST, &["shop/rolling"]); 3])?;

    let absences: Arc<Mutex<Vec<Absence>>> = Arc::default();
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Acknowledges what was removed before it asked, again and again.
    let acknowledging = {
        let (absences, over) = (Arc::clone(&absences), Arc::clone(&over));
        let (state, file) = (scene.shop.state(), scene.up.file().clone());
        tokio::spawn(async move {
            let mut asked = 0_u32;
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                let removed = absences.lock().unwrap_or_else(PoisonError::into_inner).len();
                let (status, answer) = scalwsctl::client::wait_once(&state, &file, Duration::from_secs(20)).await?;
                let now = Instant::now();
                ensure!(status == StatusCode::OK && answer.live, "{status}: {:?}", answer.held);
                asked += 1;
                acknowledge(&absences, removed, now);
                // sleep: leaves the processor to the others; how often is no matter.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            anyhow::Ok(asked)
        })
    };

    scene.traffic.doing("rolling");
    let changes = scaled(500, 10_000);
    let late = tokio::task::block_in_place(|| {
        at_rate(RATE, changes, |number| {
            let pod = (number % PODS) as usize;
            phases[pod] = phases[pod].next();
            let mut all = absences.lock().unwrap_or_else(PoisonError::into_inner);
            if phases[pod] == Phase::Ready {
                // Before the file is written: from here on it may get requests.
                if let Some(absence) = all.iter_mut().rfind(|a| a.pod == pod) {
                    absence.back = Some(Instant::now());
                }
            }
            drop(all);
            scene.shop.write("shop/rolling.yaml", &slice(&addresses, &phases))?;
            if phases[pod] == Phase::Terminating {
                let absence = Absence { pod, acknowledged: None, back: None };
                absences.lock().unwrap_or_else(PoisonError::into_inner).push(absence);
            }
            Ok(())
        })
    })?;
    scene.up.wait()?;
    scene.answered(100)?;
    over.store(true, std::sync::atomic::Ordering::SeqCst);
    let asked = acknowledging.await??;
    let report = scene.end()?;

    let absences = absences.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut looked_at, mut requests, mut wrong) = (0, 0, Vec::new());
    for log in log.iter() {
        requests += log.lock().unwrap_or_else(PoisonError::into_inner).len();
    }
    for absence in absences.iter() {
        let Some(acknowledged) = absence.acknowledged else { continue };
        let (from, until) = (acknowledged + GRACE, absence.back);
        looked_at += usize::from(until.is_none_or(|until| until > from));
        let got = log[absence.pod].lock().unwrap_or_else(PoisonError::into_inner);
        let late = got.iter().filter(|at| **at > from && until.is_none_or(|until| **at < until));
        wrong.extend(late.map(|at| (absence.pod, *at - acknowledged)));
    }
    eprintln!(
        "{changes} changes at {RATE} a second (the last {late:?} late), {asked} acknowledgements, {requests} requests to the \
         pods, {looked_at} absences of {} looked at: {report}",
        absences.len()
    );
    ensure!(looked_at > 20, "only {looked_at} absences were long enough to look at");
    ensure!(wrong.is_empty(), "removed pods got requests, so long after the acknowledgement: {wrong:?}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}
