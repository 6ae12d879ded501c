use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Guest, GuestOptions, Result};

use super::{
    Net, Options, PORT,
    net::{INSIDE, OUTSIDE},
};

/// A virtual machine on the sender's host. It runs an agent, sends `/dev/zero` by `nc` once the receiver listens, and
/// ends its agent when all bytes have arrived.
pub(super) struct Machine(Guest);

/// How long an emulated machine on a busy host may take for a step.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
const TAP: &str = "guest0";
/// Prefix of the agent's messages on the console.
const MESSAGE: &str = "SAID ";
/// Prefix of the agent's exit status on the console.
const STATUS: &str = "AGENT ";

impl Machine {
    /// Starts the machine. `agent` holds the arguments of its `dwell`, apart from the key.
    pub(super) fn start(net: &Net, options: &Options, key: &Path, agent: &[&str]) -> Result<Machine> {
        let Some(kernel) = &options.kernel else {
            return Err(Error::Host {
                wanted: "start a virtual machine",
                fact: "there is no kernel for it".to_owned(),
                remedy: "`make vm` fetches some.",
            });
        };
        let key = fs::read_to_string(key).map_err(Error::file("read", key))?;
        let script = script(net, key.trim(), &agent.join(" "), options.time);
        let guest = GuestOptions {
            programs: vec![options.programs.dwell.clone()],
            tap: Some(TAP.to_owned()),
            ..GuestOptions::new(kernel, script)
        };
        let guest = Guest::start(&guest, net.sender())?;
        net.sender().ip(&format!("addr add {OUTSIDE}/24 dev {TAP}\n"))?;
        Ok(Machine(guest))
    }

    /// Accepts the machine's connection at the receiver. Fails if the machine ends before it connects.
    pub(super) fn accept(&self, listener: &TcpListener) -> Result<TcpStream> {
        let io = |what: &'static str| Error::io(format!("{what} a virtual machine"));
        listener.set_nonblocking(true).map_err(io("wait for"))?;
        let begun = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(io("read from"))?;
                    stream.set_read_timeout(Some(PATIENCE)).map_err(io("read from"))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(io("accept")(error)),
            }
            if self.0.is_over() || begun.elapsed() > PATIENCE {
                let shows = self.0.output();
                return Err(Error::Timeout(format!(
                    "the connection of a virtual machine, whose console shows: {shows}"
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the machine has shut down. Returns its agent's messages.
    pub(super) fn end(self) -> Result<Vec<String>> {
        let console = self.0.wait(PATIENCE)?;
        let mut messages: Vec<String> = Vec::new();
        for line in console.lines() {
            if let Some(line) = line.strip_prefix(MESSAGE) {
                messages.push(format!("sender: {line}"));
            } else if let Some(status) = line.strip_prefix(STATUS).filter(|status| *status != "0") {
                return Err(Error::Command {
                    command: "dwell, as the sender's agent in a virtual machine".to_owned(),
                    status: format!("exit status: {status}"),
                    stderr: messages.join("\n"),
                });
            }
        }
        Ok(messages)
    }
}

/// The script of the guest. Connections are refused until the receiver listens. Bytes that are in the socket when `nc`
/// ends are still sent.
fn script(net: &Net, key: &str, agent: &str, time: Duration) -> String {
    let receiver = SocketAddr::from((net.server(), PORT));
    let (address, port) = (receiver.ip(), receiver.port());
    let seconds = time.as_secs_f64();
    format!(
        "ip link set eth0 up
ip addr add {INSIDE}/24 dev eth0
ip route add default via {OUTSIDE}
umask 077
echo {key} >/key
dwell {agent} --key-file /key >/said 2>&1 &
agent=$!
while kill -0 $agent; do
timeout {seconds} busybox nc {address} {port} </dev/zero
[ $? = 143 ] && break
sleep 0.2
done 2>/dev/null
while netstat -tn | grep ':{port} ' | grep -qv TIME_WAIT; do sleep 0.2; done
kill -INT $agent
wait $agent
status=$?
sed 's/^/{MESSAGE}/' /said
echo {STATUS}$status
"
    )
}
