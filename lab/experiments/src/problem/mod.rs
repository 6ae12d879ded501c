//! The pages by problem, walked: the hosts and the traffic of each page, and its commands with what they print now.

mod network;
mod page;
mod scenes;
mod stage;

use anyhow::anyhow;
use dwell_app::Exit;
use dwell_testbed::signals::Signals;

use self::{
    page::{differences, shortened, steps},
    scenes::{PAGES, Page},
    stage::Stage,
};
use crate::{Programs, failure::Failure, goal::Goal, print::say};

/// Walk a page by problem: make its hosts and its traffic, and run its commands there
///
/// Each command is printed with what it prints now. At the end are the steps whose output is not what the page shows, figures
/// apart; the exit status is 1 if there are any.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab problem slow-api             docs/problems/slow-api.md, command by command
  sudo dwell-lab problem slow-api --step 2    its second command alone
  sudo dwell-lab problem --quick dns          each for a quarter of its time")]
pub struct Problem {
    /// The page, as its file is called
    #[arg(value_name = "PAGE", value_parser = page)]
    page: &'static Page,
    /// Only this step of the page, the first one being 1
    #[arg(long, value_name = "N")]
    step: Option<usize>,
    /// Run each command for a quarter of the time that the page has
    #[arg(long)]
    quick: bool,
}

fn page(name: &str) -> Result<&'static Page, String> {
    let known = || PAGES.iter().map(|page| page.name).collect::<Vec<_>>().join(", ");
    PAGES.iter().find(|page| page.name == name).ok_or_else(|| format!("write one of {}", known()))
}

pub(crate) fn run(args: &Problem) -> Result<Exit, Failure> {
    let (programs, signals) = (Programs::find()?, Signals::watch()?);
    let steps = steps(args.page.text);
    let wanted = args.step.map_or(1..=steps.len(), |step| step..=step);
    if *wanted.start() == 0 || *wanted.end() > steps.len() {
        return Err(Failure::usage(anyhow!("{} has the steps 1 to {}", args.page.name, steps.len())));
    }
    let mut stage = Stage::new(&programs)?;
    (args.page.prepare)(&mut stage)?;
    let mut goals = Vec::new();
    for number in wanted {
        let step = &steps[number - 1];
        let host = (args.page.before)(&mut stage, number)?;
        let script = if args.quick { shortened(&step.script) } else { step.script.clone() };
        say(&format!("    {}\n\n```", script.replace('\n', "\n    ")))?;
        let printed = stage.run(host, &script, &signals.stop)?;
        say(&format!("{printed}```\n"))?;
        let difference = differences(step, &printed);
        let what = difference.as_ref().err().map_or_else(|| format!("step {number}"), ToString::to_string);
        goals.push(Goal::decided(difference.is_ok(), what));
    }
    for goal in &goals {
        say(&goal.line())?;
    }
    Ok(Goal::exit(&goals))
}
