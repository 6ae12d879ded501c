//! Balancers of other projects, in the place of `dwell lb`. They use their defaults, with the same health checks where
//! they have any.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Instant,
};

use dwell_testbed::{
    Error, Guarded, Result,
    error::{find_program, run},
    program::PATIENCE,
};

use super::{
    super::{
        connects,
        star::{PORT, SERVERS, Star},
    },
    Contender,
};

/// A running balancer that is not dwell's. It ends when this is dropped.
pub(super) struct Program<'a> {
    star: &'a Star,
    /// `None` if the kernel balances.
    process: Option<Guarded>,
}

/// Returns why this host cannot run a contender, with the remedy; `None` if it can.
pub(super) fn obstacle(star: &Star, contender: Contender) -> Result<Option<String>> {
    let lacks = |program: &str, package: &str| {
        let remedy =
            format!("run tests/unpack target/programs {package}:{program}, and add target/programs/bin to PATH");
        find_program(program).is_none().then(|| format!("there is no {program}: {remedy}"))
    };
    Ok(match contender {
        Contender::Latency | Contender::Maglev => None,
        Contender::HaproxyLeast | Contender::HaproxyTurns => lacks("haproxy", "haproxy"),
        Contender::NginxLeast | Contender::NginxTurns => {
            lacks("nginx", "nginx").or_else(|| lacks("ngx_stream_module.so", "libnginx-mod-stream"))
        }
        Contender::IpvsLeast | Contender::IpvsMaglev => {
            let has_ipvs = star.balancer.enter(|| Path::new("/proc/thread-self/net/ip_vs").exists())?;
            match has_ipvs {
                true => lacks("ipvsadm", "ipvsadm"),
                false => Some("this kernel has no ip_vs (CONFIG_IP_VS, or modprobe ip_vs)".to_owned()),
            }
        }
    })
}

impl<'a> Program<'a> {
    /// Starts a balancer in the place of `dwell lb`, and waits until clients can connect.
    pub(super) fn start(star: &'a Star, contender: Contender, folder: &Path) -> Result<Program<'a>> {
        star.give_vip_to_balancer()?;
        let mut program = Program { star, process: None };
        let words = match contender {
            Contender::HaproxyLeast => haproxy("leastconn", folder)?,
            Contender::HaproxyTurns => haproxy("roundrobin", folder)?,
            Contender::NginxLeast => nginx("least_conn;", folder)?,
            Contender::NginxTurns => nginx("", folder)?,
            Contender::IpvsLeast => return program.ipvs("wlc"),
            Contender::IpvsMaglev => return program.ipvs("mh -b mh-port"),
            Contender::Latency | Contender::Maglev => {
                return Err(Error::invalid("balancer", "dwell lb is none of the other programs"));
            }
        };
        let output =
            fs::File::create(folder.join("balancer.out")).map_err(Error::io("keep the output of a balancer"))?;
        let errors = output.try_clone().map_err(Error::io("keep the output of a balancer"))?;
        // With the priority of clients and servers, if that is permitted.
        program.process = Some(star.balancer.spawn("/bin/sh", |command| {
            command.args(["-c", REALTIME_IF_ALLOWED, "sh"]).args(&words);
            command.stdin(Stdio::null()).stdout(output).stderr(errors);
        })?);
        program.wait(&folder.join("balancer.out"))?;
        Ok(program)
    }

    /// The process that leads those of the balancer.
    pub(super) fn process(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.id())
    }

    fn wait(&mut self, output: &Path) -> Result<()> {
        let begun = Instant::now();
        while !self.star.clients[0].enter(connects)? {
            let ended = self.process.as_mut().is_some_and(|process| process.try_wait().is_ok_and(|end| end.is_some()));
            if ended || begun.elapsed() > PATIENCE {
                let said = fs::read_to_string(output).unwrap_or_default();
                return Err(Error::Timeout(format!(
                    "a connection through the balancer, which printed: {}",
                    said.trim()
                )));
            }
            thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(())
    }

    /// The kernel's balancer, which forwards to servers on the same link and lets them answer directly.
    fn ipvs(mut self, scheduler: &str) -> Result<Program<'a>> {
        let vip = Star::vip();
        let mut rules = format!("-A -t {vip} -s {scheduler}\n");
        for server in 0..SERVERS {
            let _ = writeln!(rules, "-a -t {vip} -r {}:{PORT} -g", Star::server_address(server));
        }
        run(self.star.balancer.command("ipvsadm").arg("--restore"), &rules)?;
        self.wait(Path::new("/dev/null"))?;
        Ok(self)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if self.process.take().is_none() {
            // Fails only if there are no rules.
            let _ = run(self.star.balancer.command("ipvsadm").arg("--clear"), "");
        }
        // The next balancer says what is wrong if this fails.
        let _ = self.star.take_vip_from_balancer();
    }
}

const REALTIME_IF_ALLOWED: &str = r#"chrt --fifo 50 true 2>/dev/null && exec chrt --fifo 50 "$@"; exec "$@""#;

fn haproxy(balance: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut text = format!(
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n\
         listen lab\n  bind {}\n  balance {balance}\n",
        Star::vip()
    );
    for server in 0..SERVERS {
        let address = Star::server_address(server);
        let _ = writeln!(text, "  server server{} {address}:{PORT} check inter 250ms rise 2 fall 2", server + 1);
    }
    let file = folder.join("haproxy.cfg");
    fs::write(&file, text).map_err(Error::file("write", &file))?;
    // In the foreground.
    Ok(vec![program("haproxy"), "-db".into(), "-f".into(), file])
}

fn nginx(method: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    // nginx balances TCP with this module, which does not come with it.
    let module = fs::canonicalize(program("ngx_stream_module.so")).map_err(Error::io("find ngx_stream_module.so"))?;
    let here = folder.display();
    let servers: String =
        (0..SERVERS).map(|server| format!("server {}:{PORT}; ", Star::server_address(server))).collect();
    let text = format!(
        "load_module {};\nuser root; daemon off; pid {here}/nginx.pid; worker_processes auto;\n\
         error_log stderr;\nevents {{ worker_connections 10000; }}\n\
         stream {{ upstream lab {{ {method} {servers}}} server {{ listen {}; proxy_pass lab; }} }}\n",
        module.display(),
        Star::vip()
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text).map_err(Error::file("write", &file))?;
    Ok(vec![program("nginx"), "-e".into(), "stderr".into(), "-c".into(), file])
}

fn program(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| name.into())
}
