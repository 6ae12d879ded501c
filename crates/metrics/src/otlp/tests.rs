//! What a push sends, and what becomes of answers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse},
    metrics::v1::metric::Data,
};
use prost::Message;

use super::*;
use crate::{Family, Numbers, Registry};

/// The head and the body of a request.
type Request = (String, Vec<u8>);

/// Answers requests one after the other with a status and a body, and passes each on before it is answered.
fn receiver(answers: Vec<(&'static str, Vec<u8>)>) -> (SocketAddr, mpsc::Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut request = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut request).unwrap();
            sender.send((head, request)).unwrap();
            let length = body.len();
            let kind = "Content-Type: application/x-protobuf\r\nConnection: close";
            write!(stream, "HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n").unwrap();
            stream.write_all(&body).unwrap();
        }
    });
    (address, requests)
}

/// Pushes to an address, and collects what is told.
fn pusher(address: SocketAddr, registry: &Arc<Registry>, interval: Duration) -> (Pusher, Arc<Mutex<Vec<Event>>>) {
    let target = Target {
        endpoint: format!("http://{address}").parse().unwrap(),
        headers: "X-Tenant: a".parse().unwrap(),
        interval,
        resource: vec![("host.name", "web-1".into())],
    };
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let pusher = Pusher::start(target, Arc::clone(registry), move |event| told.lock().unwrap().push(event)).unwrap();
    (pusher, events)
}

/// The value of the first series of each metric that has numbers, without what the process costs.
fn numbers(body: &[u8]) -> Vec<(String, String)> {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let values = metrics.iter().filter(|metric| !metric.name.starts_with("process_")).map(|metric| {
        let points = match metric.data.as_ref().unwrap() {
            Data::Gauge(gauge) => &gauge.data_points,
            Data::Sum(sum) => &sum.data_points,
            other => panic!("{other:?}"),
        };
        (metric.name.clone(), format!("{:?}", points[0].value.unwrap()))
    });
    values.collect()
}

#[test]
fn a_run_is_pushed_when_it_starts_and_when_it_ends() {
    const OPEN: Family = Family::gauge("dwell_test_open_bytes", &[], "Bytes.");
    let (address, requests) = receiver(vec![("200 OK", Vec::new()); 2]);
    let registry = Arc::new(Registry::new("0.1.0"));
    let (pusher, events) = pusher(address, &registry, Duration::from_secs(3600));
    let (head, body) = requests.recv().unwrap();
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    for header in ["content-type: application/x-protobuf\r\n", "x-tenant: a\r\n"] {
        assert!(head.contains(header), "{head}");
    }
    let mut want = vec![
        ("dwell_build_info".to_owned(), "AsInt(1)".to_owned()),
        ("dwell_otlp_pushes_total".to_owned(), "AsDouble(0.0)".to_owned()),
    ];
    assert_eq!(numbers(&body), want);
    registry.register(Numbers::default()).lock().add(OPEN, &[], 7.0);
    drop(pusher);
    want[1].1 = "AsDouble(1.0)".into();
    want.push(("dwell_test_open_bytes".into(), "AsDouble(7.0)".into()));
    assert_eq!(numbers(&requests.recv().unwrap().1), want);
    assert_eq!(*events.lock().unwrap(), []);
}

#[test]
fn an_outage_is_told_once_with_what_the_receiver_says_and_pushes_go_on() {
    // google.rpc.Status with a code and, as field 2, a message of ten letters.
    let full = b"\x08\x0e\x12\x0aqueue full".to_vec();
    let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "too old".into() };
    let partial = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let (down, up) = (("503 Service Unavailable", full), ("200 OK", Vec::new()));
    let mut answers = vec![down.clone(), down, up.clone(), ("200 OK", partial)];
    answers.resize(1_000, up);
    let (address, requests) = receiver(answers);
    let registry = Arc::new(Registry::new("0.1.0"));
    let (pusher, events) = pusher(address, &registry, Duration::from_millis(5));
    for _ in 0..5 {
        requests.recv().unwrap();
    }
    drop(pusher);
    let endpoint = format!("http://{address}/v1/metrics");
    let failed = |why: &str| Event::Failed { endpoint: endpoint.clone(), why: why.to_owned() };
    let resumed = Event::Resumed { endpoint: endpoint.clone() };
    let told = events.lock().unwrap().clone();
    let unavailable = "the receiver answers 503 Service Unavailable: queue full";
    let want = [failed(unavailable), resumed.clone(), failed("the receiver refuses 3 series: too old"), resumed];
    assert_eq!(told, want);
    let text = registry.render();
    assert!(text.contains("dwell_otlp_pushes_total{outcome=\"failed\"} 3\n"), "{told:?} {text}");
}

#[test]
fn a_receiver_that_does_not_answer_holds_up_nothing_for_long() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let registry = Arc::new(Registry::new("0.1.0"));
    let (pusher, events) = pusher(silent.local_addr().unwrap(), &registry, Duration::from_secs(3600));
    let _connection = silent.accept().unwrap();
    assert!(registry.render().contains("dwell_build_info"));
    drop(pusher);
    assert!(matches!(events.lock().unwrap()[..], [Event::Unfinished { .. }]));
}
