//! The instances of the study: users whose arms a learner moves between groups, and over time.

use bandana_learners::Learner;

/// What changes at the beginning of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing but the means.
    None,
    /// A day begins.
    Day,
    /// An arm is added.
    Add,
    /// An arm is retired.
    Retire(usize),
}

/// A time in which means stay as they are.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What changes first.
    pub change: Change,
    /// The number of users.
    pub users: u64,
    /// For each segment, the mean rewards of the arms.
    pub means: Vec<Vec<f64>>,
}

/// An experiment to simulate.
#[derive(Clone, Debug)]
pub struct VerdictInstance {
    /// The name in tables.
    pub name: &'static str,
    /// The privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// The rule that moves the traffic.
    pub learner: Learner,
    /// The shares of the users in each segment.
    pub segments: Vec<f64>,
    /// The number of arms at the start.
    pub arms: usize,
    /// What comes one after the other.
    pub phases: Vec<Phase>,
    /// A guardrail metric: its limit, and its mean in each segment, whatever the arm.
    pub guardrail: Option<(f64, Vec<f64>)>,
}

impl VerdictInstance {
    fn new(
        name: &'static str,
        (epsilon, learner): (f64, Learner),
        segments: &[f64],
        arms: usize,
        phases: Vec<Phase>,
    ) -> Self {
        let segments = segments.to_vec();
        Self { name, epsilon, learner, segments, arms, phases, guardrail: None }
    }

    /// All instances, in the order of the table.
    pub fn all() -> Vec<Self> {
        let mut all = Self::by_segment();
        all.extend(Self::over_time());
        all.extend(Self::with_changes());
        all
    }

    /// Arms whose order differs by segment, so that the traffic does.
    fn by_segment() -> Vec<Self> {
        let halves = &[0.5, 0.5][..];
        let opposed = vec![vec![0.9, 0.8, 0.2], vec![0.1, 0.4, 0.3]];
        let pair: Vec<Vec<f64>> = opposed.iter().map(|means| means[..2].to_vec()).collect();
        let mirrored = vec![vec![0.8, 0.3], vec![0.3, 0.8]];
        let constant = |users, means: &[Vec<f64>]| {
            vec![Phase { change: Change::None, users, means: means.to_vec() }]
        };
        let many: Vec<Vec<f64>> = (0..16_u32)
            .map(|segment| {
                let level = 0.2 + 0.6 * f64::from(segment) / 15.0;
                if segment.is_multiple_of(2) {
                    vec![level + 0.1, level]
                } else {
                    vec![level, level + 0.1]
                }
            })
            .collect();
        let guarded = Self {
            guardrail: Some((0.3, vec![0.4, 0.1])),
            ..Self::new("guardrail", (2.0, Learner::LdpTs), halves, 2, constant(20_000, &pair))
        };
        vec![
            Self::new(
                "simpson, decide",
                (2.0, Learner::TopTwo),
                halves,
                3,
                constant(30_000, &opposed),
            ),
            Self::new("simpson, ldp-ts", (2.0, Learner::LdpTs), halves, 2, constant(30_000, &pair)),
            Self::new(
                "mirrored, equal",
                (4.0, Learner::LdpTs),
                halves,
                2,
                constant(30_000, &mirrored),
            ),
            Self::new(
                "mirrored, decide",
                (4.0, Learner::TopTwo),
                halves,
                2,
                constant(30_000, &mirrored),
            ),
            Self::new(
                "16 segments, equal",
                (4.0, Learner::LdpTs),
                &[1.0 / 16.0; 16],
                2,
                constant(30_000, &many),
            ),
            guarded,
        ]
    }

    /// Means that move while the traffic does.
    fn over_time() -> Vec<Self> {
        let all = &[1.0][..];
        let fall = |learner| {
            let phases = vec![
                Phase { change: Change::None, users: 20_000, means: vec![vec![0.7, 0.65]] },
                Phase { change: Change::Add, users: 20_000, means: vec![vec![0.4, 0.35, 0.5]] },
            ];
            (learner, phases)
        };
        let (uniform, of_uniform) = fall(Learner::Uniform);
        let (ldp_ts, of_ldp_ts) = fall(Learner::LdpTs);
        let (top_two, of_top_two) = fall(Learner::TopTwo);
        let days = |learner_days: u32, gap: f64| -> Vec<Phase> {
            (0..learner_days)
                .map(|day| {
                    let level = 0.5 + 0.3 * (f64::from(day) / 3.0).sin();
                    let change = if day == 0 { Change::None } else { Change::Day };
                    Phase { change, users: 1000, means: vec![vec![level + gap, level]] }
                })
                .collect()
        };
        vec![
            Self::new("fall, uniform", (2.0, uniform), all, 2, of_uniform),
            Self::new("fall, ldp-ts", (2.0, ldp_ts), all, 2, of_ldp_ts),
            Self::new("fall, decide", (2.0, top_two), all, 2, of_top_two),
            Self::new("30 days, equal", (4.0, Learner::LdpTs), all, 2, days(30, 0.0)),
            Self::new("30 days, decide", (4.0, Learner::TopTwo), all, 2, days(30, 0.05)),
        ]
    }

    /// Arms that come and go.
    fn with_changes() -> Vec<Self> {
        let halves = &[0.5, 0.5][..];
        let equal = |arms: usize, level: f64| vec![vec![level; arms]; 2];
        let growing: Vec<Phase> = (0..8)
            .map(|number| {
                let change = if number == 0 { Change::None } else { Change::Add };
                let level = 0.8 - 0.08 * f64::from(u8::try_from(number).unwrap_or(0));
                Phase { change, users: 3000, means: equal(2 + number, level) }
            })
            .collect();
        let retiring = vec![
            Phase { change: Change::None, users: 5000, means: equal(4, 0.7) },
            Phase { change: Change::Retire(0), users: 5000, means: equal(4, 0.5) },
            Phase { change: Change::Add, users: 5000, means: equal(5, 0.3) },
            Phase { change: Change::Day, users: 10_000, means: equal(5, 0.6) },
        ];
        vec![
            Self::new("added, equal", (2.0, Learner::LdpTs), halves, 2, growing),
            Self::new("retired, equal", (2.0, Learner::TopTwo), halves, 4, retiring.clone()),
            Self::new("retired, uniform", (2.0, Learner::Uniform), halves, 4, retiring),
        ]
    }
}
