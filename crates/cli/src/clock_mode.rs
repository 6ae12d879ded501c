//! `--clock-mode`: what takes the timestamps when clocks of two hosts are compared.

use std::net::ToSocketAddrs;

use anyhow::anyhow;
use clap::ValueEnum;
use dwell_fleet::CollectorAddress;
use dwell_probes::clock::{ClockMode, driver_obstacle};

use crate::{exit::Failure, log::log};

/// The option.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct ClockModeArgs {
    /// How packets that compare clocks are timestamped: by sockets; by XDP in the network stack, briefly; or by XDP in
    /// drivers, which may reset a device, and not where there is a default route unless forced
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Value::Generic)]
    clock_mode: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Value {
    Socket,
    Generic,
    Native,
    NativeForced,
}

impl ClockModeArgs {
    /// Returns the mode. Says what will happen to devices if that is more than usual.
    pub fn mode(&self) -> ClockMode {
        let mode = match self.clock_mode {
            Value::Socket => ClockMode::Socket,
            Value::Generic => ClockMode::Generic,
            Value::Native => ClockMode::Driver,
            Value::NativeForced => ClockMode::DriverForced,
        };
        let but = match mode {
            ClockMode::Driver => ", but for devices that carry a default route",
            ClockMode::DriverForced => ", also where it carries the default route",
            ClockMode::Socket | ClockMode::Generic => return mode,
        };
        log(format_args!(
            "an XDP program will be attached in the driver of each device by which clocks are compared{but}, and stay there \
             until the end; some drivers reset the link for that, lose packets, or refuse jumbo frames"
        ));
        mode
    }

    /// Fails if the driver of the device that leads to a collector must not be given a program.
    pub fn check(&self, collector: &CollectorAddress) -> Result<(), Failure> {
        if self.clock_mode != Value::Native {
            return Ok(());
        }
        // A name that cannot be resolved now is looked at later: then the device gets no program in its driver.
        let addresses = collector.to_string().to_socket_addrs().into_iter().flatten();
        match addresses.map(|address| driver_obstacle(address.ip())).find_map(|obstacle| obstacle) {
            None => Ok(()),
            Some(obstacle) => Err(Failure::usage(anyhow!(
                "--clock-mode native attaches an XDP program in the driver of the device that leads to the collector, which may \
                 reset its link, and {obstacle}: leave --clock-mode at generic, or force it with --clock-mode native-forced"
            ))),
        }
    }
}
