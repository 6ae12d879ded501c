//! The settings in which policies are compared.

use super::cluster::{Cluster, Discipline, Shape};

/// A setting.
pub struct Setting {
    pub name: &'static str,
    /// Whether constants of the balancer's policy were chosen with servers and loads like these.
    pub chosen_on: bool,
    pub cluster: Cluster,
}

/// All settings, first those on which constants were chosen.
pub fn all() -> Vec<Setting> {
    let default = Cluster::default;
    let chosen = [
        ("alike-0.3", Cluster { load: 0.3, ..default() }),
        ("alike-0.5", Cluster { load: 0.5, ..default() }),
        ("alike-0.7", Cluster { load: 0.7, ..default() }),
        ("one-slow", Cluster { load: 0.5, slowness: |server, _| if server == 0 { 4.0 } else { 1.0 }, ..default() }),
        ("in-turn", Cluster { load: 0.4, slowness: |server, time| in_turn(server, time, 4, 15.0, 2.0), ..default() }),
        (
            "slow-for-10s",
            Cluster {
                load: 0.4,
                slowness: |server, time| if server == 0 && (10.0..20.0).contains(&time) { 10.0 } else { 1.0 },
                ..default()
            },
        ),
    ];
    let chosen = chosen.map(|(name, cluster)| Setting { name, chosen_on: true, cluster });
    let held_out = held_out().map(|(name, cluster)| Setting { name, chosen_on: false, cluster });
    chosen.into_iter().chain(held_out).collect()
}

/// Every so many seconds another server is slower.
fn in_turn(server: usize, time: f64, servers: usize, seconds: f64, times: f64) -> f64 {
    if server == (time / seconds) as usize % servers { times } else { 1.0 }
}

/// Settings that no constant was chosen on.
fn held_out() -> [(&'static str, Cluster); 10] {
    let default = Cluster::default;
    let shared = Discipline::Shared;
    [
        (
            "stalls",
            Cluster {
                load: 0.5,
                slowness: |server, time| if server == 2 && (20.0..25.0).contains(&time) { 1e6 } else { 1.0 },
                ..default()
            },
        ),
        (
            "half-older",
            Cluster {
                servers: 16,
                load: 0.45,
                slowness: |server, _| if server < 8 { 1.6 } else { 1.0 },
                discipline: shared,
                ..default()
            },
        ),
        (
            "oscillates",
            Cluster { servers: 8, load: 0.4, slowness: |server, time| in_turn(server, time, 8, 7.0, 3.0), ..default() },
        ),
        (
            "ramps",
            Cluster {
                load: 0.35,
                slowness: |server, time| if server == 1 { 1.0 + time / 20.0 } else { 1.0 },
                ..default()
            },
        ),
        ("bimodal", Cluster { servers: 8, load: 0.6, shape: Shape::Bimodal(0.01, 50.0), ..default() }),
        (
            "heavy-tailed",
            Cluster { servers: 16, load: 0.6, shape: Shape::LogNormal(1.5), discipline: shared, ..default() },
        ),
        ("one-request", Cluster { servers: 64, load: 0.7, requests: 1, ..default() }),
        (
            "keep-alive",
            Cluster {
                servers: 8,
                load: 0.5,
                requests: 200,
                think: 0.05,
                slowness: |server, _| if server == 3 { 2.0 } else { 1.0 },
                ..default()
            },
        ),
        (
            "step",
            Cluster { load: 0.3, rise: |time| if time < 30.0 { 1.0 } else { 2.5 }, discipline: shared, ..default() },
        ),
        ("constant", Cluster { servers: 32, load: 0.8, shape: Shape::Constant, ..default() }),
    ]
}
