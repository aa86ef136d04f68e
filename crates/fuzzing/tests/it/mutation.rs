//! Seeded mutations of a target's seeds.

use fastrand::Rng;
use fuzzing::FuzzTarget;

/// Mutations per input; more would leave little of the seed.
const MUTATIONS_MAX: usize = 8;
/// Limit for inputs, because copied parts would grow them without end.
const BYTES_MAX: usize = 4096;

/// An endless sequence of inputs, the same in every run.
pub(crate) struct Mutator {
    random: Rng,
    seeds: Vec<Vec<u8>>,
    dictionary: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(target: &FuzzTarget) -> Self {
        let random = Rng::with_seed(0x756e_736b_6577);
        Self { random, seeds: target.seeds(), dictionary: target.dictionary() }
    }

    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        for _ in 0..self.random.usize(1..=MUTATIONS_MAX) {
            self.mutate(&mut input);
        }
        input.truncate(BYTES_MAX);
        input
    }

    fn seed(&mut self) -> Vec<u8> {
        self.random.choice(&self.seeds).expect("every target has seeds").clone()
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.random.usize(..=input.len());
        let end = (at + self.random.usize(..16)).min(input.len());
        match self.random.u8(..8) {
            0 if at < input.len() => input[at] ^= 1 << self.random.u8(..8),
            1 if at < input.len() => input[at] = self.random.u8(..),
            2 => drop(input.drain(at..end)),
            3 => {
                let part = input[at..end].to_vec();
                let to = self.random.usize(..=input.len());
                input.splice(to..to, part);
            }
            4 => {
                // Splice the beginning of this input with the end of another seed.
                let other = self.seed();
                let from = self.random.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 => {
                let word = self.random.choice(&self.dictionary).expect("every target has words");
                input.splice(at..end, word.iter().copied());
            }
            _ => {
                let word = self.random.choice(&self.dictionary).expect("every target has words");
                input.splice(at..at, word.iter().copied());
            }
        }
    }
}
