use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    thread,
    time::Duration,
};

use bytes::{Buf, Bytes};
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Error, Nanos, Result};
use h3::client::SendRequest;
use http::{Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{RootCertStore, pki_types::CertificateDer};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    super::{
        LoadReport, Task,
        agenda::Agenda,
        client::{ClientConfig, LAST_ANSWERS, agenda, conclude},
        truth::{Flow, Record, realtime_minus_monotonic_ns},
    },
    ClientPart, PROTOCOL, provider,
};
use crate::loads::quic::{SERVER_NAME, block_on, endpoint, in_time};

type Sender = SendRequest<h3_quinn::OpenStreams, Bytes>;

/// Runs the load, writes the truth log, and sums up.
pub(in super::super) fn run(part: &ClientPart) -> Result<LoadReport> {
    let ClientPart { config, certificate } = part;
    let offset_ns = realtime_minus_monotonic_ns();
    let quic = quic_config(certificate)?;
    let begin_ns = monotonic_ns() + 100_000_000;
    let threads = config.threads.clamp(1, config.connections);
    let flows = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let quic = &quic;
                scope.spawn(move || {
                    let own = (thread..config.connections).step_by(threads);
                    block_on(drive(config, quic, own, begin_ns))
                })
            })
            .collect();
        let ended =
            started.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Result<Vec<_>>>()
    })?;
    conclude(config, &flows.concat(), offset_ns)
}

fn quic_config(certificate: &[u8]) -> Result<quinn::ClientConfig> {
    let wrong = |why: &dyn std::fmt::Display| Error::invalid("HTTP/3 client", why.to_string());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.to_vec())).map_err(|why| wrong(&why))?;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| wrong(&why))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tls = QuicClientConfig::try_from(tls).map_err(|why| wrong(&why))?;
    Ok(quinn::ClientConfig::new(Arc::new(tls)))
}

/// The connections of one thread, by their numbers.
async fn drive(
    config: &ClientConfig,
    quic: &quinn::ClientConfig,
    numbers: impl Iterator<Item = usize>,
    begin_ns: u64,
) -> Result<Vec<Flow>> {
    let mut conversations = JoinSet::new();
    for number in numbers {
        let (config, quic) = (config.clone(), quic.clone());
        conversations.spawn(async move {
            let agenda = agenda(&config, number as u64, begin_ns);
            let end_ns = begin_ns + Nanos::from(config.duration).0;
            converse(config.server, quic, agenda, end_ns).await
        });
    }
    let mut flows = Vec::new();
    while let Some(flow) = conversations.join_next().await {
        flows.push(flow.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?);
    }
    Ok(flows)
}

/// One connection, from a port of its own.
async fn converse(server: SocketAddr, quic: quinn::ClientConfig, agenda: Agenda, end_ns: u64) -> Result<Flow> {
    let socket = bind(server).map_err(Error::io(format!("find a way to {server}")))?;
    let mut endpoint = endpoint(socket, None)?;
    endpoint.set_default_client_config(quic);
    let source = endpoint.local_addr().map_err(Error::io("look up a port"))?;
    let connecting = endpoint.connect(server, SERVER_NAME).map_err(|why| Error::invalid("HTTP/3 client", why))?;
    let connection = in_time(connecting, "a QUIC connection").await?;
    let mut builder = h3::client::builder();
    builder.send_grease(false);
    let transport = h3_quinn::Connection::new(connection.clone());
    let (mut driver, sender) = in_time(builder.build::<_, _, Bytes>(transport), "an HTTP/3 connection").await?;
    let driver = tokio::spawn(async move { driver.wait_idle().await });
    let records = Talk::new(sender, agenda).run(end_ns).await?;
    connection.close(quinn::VarInt::from_u32(0x100), b"");
    let _ = driver.await;
    // The last words reach the server if they can.
    let _ = timeout(Duration::from_millis(100), endpoint.wait_idle()).await;
    Ok(Flow { source, destination: server, records })
}

/// A socket with the address that packets to the server come from, as the truth log is to tell it.
fn bind(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let unspecified = match server {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let trial = UdpSocket::bind(unspecified)?;
    trial.connect(server)?;
    UdpSocket::bind((trial.local_addr()?.ip(), 0))
}

/// What is asked on a connection, and what has been answered.
struct Talk {
    sender: Sender,
    agenda: Agenda,
    under_way: JoinSet<Result<Answered>>,
    records: Vec<Record>,
}

struct Answered {
    task: usize,
    record: usize,
    sent_ns: u64,
    done_ns: u64,
}

impl Talk {
    fn new(sender: Sender, agenda: Agenda) -> Self {
        Self { sender, agenda, under_way: JoinSet::new(), records: Vec::new() }
    }

    async fn run(mut self, end_ns: u64) -> Result<Vec<Record>> {
        loop {
            let now_ns = monotonic_ns();
            let ending = now_ns >= end_ns;
            if !ending && self.agenda.start_round(now_ns) {
                self.ask();
            }
            if self.under_way.is_empty() {
                match self.agenda.next_round_ns() {
                    _ if ending => return Ok(self.records),
                    None => return Ok(self.records),
                    Some(next_ns) => {
                        let left = next_ns.min(end_ns).saturating_sub(now_ns);
                        sleep(Duration::from_nanos(left)).await;
                    }
                }
                continue;
            }
            let answered = timeout(LAST_ANSWERS, self.under_way.join_next()).await;
            match answered {
                Ok(Some(answered)) => {
                    let answered = answered.unwrap_or_else(|error| {
                        std::panic::resume_unwind(error.into_panic());
                    })?;
                    self.answered(&answered, end_ns);
                }
                Ok(None) => {}
                Err(_) => return Err(Error::Timeout("the answer to a request".to_owned())),
            }
        }
    }

    /// Gives the number of the first request that went.
    fn ask(&mut self) -> Option<u64> {
        let first = self.agenda.next_id();
        while let Some((task, id)) = self.agenda.next() {
            let record = self.records.len();
            let asked = self.agenda.task(task);
            self.records.push(Record {
                id,
                class: asked.class,
                bytes: asked.bytes,
                sent_ns: 0,
                done_ns: 0,
                triggers: None,
            });
            let sender = self.sender.clone();
            self.under_way.spawn(async move {
                let (sent_ns, done_ns) = fetch(sender, asked, id).await?;
                Ok(Answered { task, record, sent_ns, done_ns })
            });
        }
        (self.agenda.next_id() != first).then_some(first)
    }

    fn answered(&mut self, answered: &Answered, end_ns: u64) {
        let &Answered { task, record, sent_ns, done_ns } = answered;
        self.agenda.answered(task);
        let mut triggers = None;
        if monotonic_ns() < end_ns {
            triggers = self.ask();
            if self.agenda.conclude_round(done_ns) {
                triggers = triggers.or(self.ask());
            }
        }
        let record = &mut self.records[record];
        (record.sent_ns, record.done_ns, record.triggers) = (sent_ns, done_ns, triggers);
    }
}

/// When the request was about to be written, and when all of its answer had been read.
async fn fetch(mut sender: Sender, task: Task, id: u64) -> Result<(u64, u64)> {
    let wrong = |why: &dyn std::fmt::Display| Error::invalid("answer over HTTP/3", why.to_string());
    let Task { class, bytes, .. } = task;
    let request = Request::get(format!("https://{SERVER_NAME}/{class}/{bytes}/{id}"))
        .header("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
        .header("accept-language", "en-GB,en;q=0.5")
        .body(())
        .map_err(|why| wrong(&why))?;
    let sent_ns = monotonic_ns();
    let mut stream = sender.send_request(request).await.map_err(|why| wrong(&why))?;
    stream.finish().await.map_err(|why| wrong(&why))?;
    let response = stream.recv_response().await.map_err(|why| wrong(&why))?;
    let mut length = 0;
    while let Some(piece) = stream.recv_data().await.map_err(|why| wrong(&why))? {
        length += piece.remaining() as u64;
    }
    let done_ns = monotonic_ns();
    match (response.status(), length) {
        (StatusCode::OK, length) if length == bytes => Ok((sent_ns, done_ns)),
        (status, length) => Err(wrong(&format!("{status}, {length} bytes of {bytes}"))),
    }
}
