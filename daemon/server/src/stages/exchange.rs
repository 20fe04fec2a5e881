//! Questions and answers of a trace, kept and given again.

use flambeau_ir::oracle::{Answer, Oracle, OracleError, Question};
use serde::{Deserialize, Serialize};

/// One call of the oracle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// What was asked.
    pub questions: Vec<Question>,
    /// What was said.
    pub answers: Vec<Answer>,
}

/// Passes questions on and keeps what was said.
pub struct Recorder<'a> {
    inner: &'a mut dyn Oracle,
    /// What was said, in order.
    pub exchanges: Vec<Exchange>,
}

impl<'a> Recorder<'a> {
    /// Records what `inner` is asked.
    pub fn new(inner: &'a mut dyn Oracle) -> Self {
        Recorder { inner, exchanges: Vec::new() }
    }
}

impl Oracle for Recorder<'_> {
    fn ask(&mut self, questions: &[Question]) -> Result<Vec<Answer>, OracleError> {
        let answers = self.inner.ask(questions)?;
        self.exchanges.push(Exchange { questions: questions.to_vec(), answers: answers.clone() });
        Ok(answers)
    }
}

/// Answers from a recording; a question that was not asked then is an error.
pub struct Replayed {
    exchanges: std::vec::IntoIter<Exchange>,
}

impl Replayed {
    /// Answers what `exchanges` holds, in that order.
    pub fn new(exchanges: Vec<Exchange>) -> Self {
        Replayed { exchanges: exchanges.into_iter() }
    }

    /// Exchanges that were not asked for.
    pub fn left(&self) -> usize {
        self.exchanges.len()
    }
}

impl Oracle for Replayed {
    fn ask(&mut self, questions: &[Question]) -> Result<Vec<Answer>, OracleError> {
        let Some(next) = self.exchanges.next() else {
            return Err(OracleError(format!("the recording ends before {questions:?}")));
        };
        if next.questions != questions {
            return Err(OracleError(format!("recorded {:?}, asked {questions:?}", next.questions)));
        }
        Ok(next.answers)
    }
}
