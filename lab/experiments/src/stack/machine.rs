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

/// A sender that is a virtual machine on the sender's host: it runs its agent, sends what `nc` finds in `/dev/zero`
/// once the receiver listens, and ends its agent when all has arrived.
pub(super) struct Machine(Guest);

/// How long a machine that is emulated on a busy host may take for something.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
const TAP: &str = "guest0";
/// Before what the agent said, on the console.
const SAID: &str = "SAID ";
/// Before the status that it ended with.
const ENDED: &str = "AGENT ";

impl Machine {
    /// Starts it. `agent` is what follows `dwell` there, but for the key.
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

    /// What the machine sends, at the receiver. An error if it has ended before it sent.
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

    /// Waits until it has ended. Returns what its agent said.
    pub(super) fn end(self) -> Result<Vec<String>> {
        let console = self.0.wait(PATIENCE)?;
        let mut said: Vec<String> = Vec::new();
        for line in console.lines() {
            if let Some(line) = line.strip_prefix(SAID) {
                said.push(format!("sender: {line}"));
            } else if let Some(status) = line.strip_prefix(ENDED).filter(|status| *status != "0") {
                return Err(Error::Command {
                    command: "dwell, as the sender's agent in a virtual machine".to_owned(),
                    status: format!("exit status: {status}"),
                    stderr: said.join("\n"),
                });
            }
        }
        Ok(said)
    }
}

/// Until the receiver listens, it is refused. What is in the socket when `nc` is ended goes on being sent.
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
sed 's/^/{SAID}/' /said
echo {ENDED}$status
"
    )
}
