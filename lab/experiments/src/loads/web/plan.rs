//! What the clients fetch: pages, or objects as they come, of sizes as the web has them.

use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use crate::loads::{Mode, Task, generator, normal};

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Html,
    Css,
    Js,
    Image,
}

/// The share of a log-normal fit that lies below its maximum, as a standard normal value: 99.99 %.
const MAXIMUM_AT: f64 = 3.719;

/// Tasks that an endless window draws at a time.
const STRETCH: usize = 64;

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Css => "css",
            Self::Js => "js",
            Self::Image => "image",
        }
    }

    /// Median and maximum size in bytes, as the home pages had them that section 4.1 of arXiv 2505.14358 describes.
    fn sizes(self) -> (f64, f64) {
        match self {
            Self::Html => (39_500.0, 2_650_000.0),
            Self::Css => (11_800.0, 1_200_000.0),
            Self::Js => (19_600.0, 4_050_000.0),
            Self::Image => (20_800.0, 8_860_000.0),
        }
    }

    /// A size: log-normal about the median, as wide as puts the maximum at 99.99 %. What is above it is drawn again.
    fn size(self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let (median, maximum) = self.sizes();
        let width = (maximum / median).ln() / MAXIMUM_AT;
        loop {
            let size = median * (width * normal(random)).exp();
            if size <= maximum {
                return (size as u64).max(1);
            }
        }
    }

    /// An object of the mix that pages have, without their order.
    fn any(random: &mut Xoshiro256PlusPlus) -> Self {
        match random.random_range(0..19) {
            0 => Self::Html,
            1..4 => Self::Css,
            4..9 => Self::Js,
            _ => Self::Image,
        }
    }
}

/// What one connection fetches, round after round; the same for the same seed and connection.
#[derive(Debug)]
pub(super) struct Plan {
    mode: Mode,
    depth: usize,
    random: Xoshiro256PlusPlus,
}

impl Plan {
    pub(super) fn new(mode: Mode, depth: usize, seed: u64, connection: u64) -> Self {
        Self { mode, depth, random: generator(seed, 1, connection) }
    }

    pub(super) fn round(&mut self) -> Vec<Task> {
        match self.mode {
            Mode::Page => self.page(),
            Mode::Batch => self.objects(self.depth),
            Mode::Window => self.objects(STRETCH),
        }
    }

    fn objects(&mut self, count: usize) -> Vec<Task> {
        let mut tasks = Vec::with_capacity(count);
        for _ in 0..count {
            let class = Class::any(&mut self.random);
            self.add(&mut tasks, class, None);
        }
        tasks
    }

    /// The document; what it names; then what style sheets and scripts name in turn. A parent stands before its
    /// children.
    fn page(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        let html = self.add(&mut tasks, Class::Html, None);
        let direct = [(Class::Css, 1..=4), (Class::Js, 1..=6), (Class::Image, 2..=12)];
        for (class, count) in direct {
            for _ in 0..self.random.random_range(count) {
                self.add(&mut tasks, class, Some(html));
            }
        }
        for parent in 1..tasks.len() {
            let (count, class) = match tasks[parent].class {
                // A background image or two in every second style sheet.
                "css" if self.random.random_bool(0.5) => (self.random.random_range(1..=2), Class::Image),
                // Some scripts load another.
                "js" if self.random.random_bool(0.3) => (1, Class::Js),
                _ => continue,
            };
            for _ in 0..count {
                self.add(&mut tasks, class, Some(parent));
            }
        }
        tasks
    }

    fn add(&mut self, tasks: &mut Vec<Task>, class: Class, parent: Option<usize>) -> usize {
        tasks.push(Task { class: class.name(), bytes: class.size(&mut self.random), parent });
        tasks.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_medians_and_maxima() {
        // Section 4.1 of arXiv 2505.14358.
        let known = [
            (Class::Css, 11_800.0, 1_200_000.0),
            (Class::Js, 19_600.0, 4_050_000.0),
            (Class::Html, 39_500.0, 2_650_000.0),
            (Class::Image, 20_800.0, 8_860_000.0),
        ];
        for (class, median, maximum) in known {
            let mut random = generator(7, 0, 0);
            let mut sizes: Vec<u64> = (0..40_000).map(|_| class.size(&mut random)).collect();
            sizes.sort_unstable();
            let found = sizes[sizes.len() / 2] as f64;
            assert!((found / median - 1.0).abs() < 0.05, "{class:?}: median {found}");
            let largest = *sizes.last().unwrap() as f64;
            assert!(largest <= maximum, "{class:?}: {largest}");
            assert!(largest > maximum / 4.0, "{class:?}: the tail is missing, {largest}");
        }
    }

    #[test]
    fn a_page_is_a_tree_whose_root_is_its_document() {
        let mut plan = Plan::new(Mode::Page, 4, 1, 0);
        let (mut nested, mut objects) = (0, 0);
        for _ in 0..200 {
            let page = plan.round();
            assert_eq!((page[0].class, page[0].parent), ("html", None));
            objects += page.len();
            for (n, task) in page.iter().enumerate().skip(1) {
                let parent = task.parent.expect("only the document has no parent");
                assert!(parent < n);
                match (page[parent].class, task.class) {
                    ("html", "css" | "js" | "image") => {}
                    ("css", "image") | ("js", "js") => nested += 1,
                    other => panic!("{other:?}"),
                }
            }
            for class in ["css", "js", "image"] {
                assert!(page.iter().any(|task| task.class == class));
            }
        }
        assert!((300..900).contains(&nested), "{nested}");
        assert!((2_800..3_800).contains(&objects), "{objects}");
    }

    #[test]
    fn a_batch_has_as_many_objects_as_may_be_outstanding() {
        let batch = Plan::new(Mode::Batch, 8, 1, 0).round();
        assert_eq!(batch.len(), 8);
        assert!(batch.iter().all(|task| task.parent.is_none()));
    }

    #[test]
    fn a_plan_follows_from_seed_and_connection() {
        let page = |seed, connection| Plan::new(Mode::Page, 4, seed, connection).round();
        assert_eq!(page(1, 0), page(1, 0));
        assert_ne!(page(1, 0), page(2, 0));
        assert_ne!(page(1, 0), page(1, 1));
    }
}
