//! `bandana query register`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bandana_mechanisms::queries::universe::quoted;
use bandana_shared::wire::v1::{
    self, RegisterDataSetRequest, partition_selection, register_data_set_request,
};
use clap::{Args, ValueHint};
use toml::{Table, Value};

use super::Server;
use crate::views::data_set_view::DataSetsView;
use crate::views::failure::Failure;

#[derive(Debug, Args)]
pub(in crate::cli) struct Register {
    /// Name of the data set: 1 to 64 lower-case letters, digits and hyphens.
    #[arg(value_name = "NAME")]
    name: String,
    /// File in the server's directory of data sets. It is Parquet if its name ends in .parquet,
    /// else CSV with headings.
    #[arg(long, value_name = "FILE")]
    file: String,
    /// A column and its values: `age:18..99` for integers, `temp:-5..40:0.5` for numbers in steps,
    /// `city:Bonn|Ulm` for names.
    ///
    /// `age:18..99!` counts what lies beyond as the nearer end, and `age:18..99?40` reads 40 where a
    /// value is missing. `city:Bonn|Ulm|other*` counts every other name as `other`, and
    /// `sex:female|male|NA` makes a missing value a value of its own. Put a name with any of = , | : *
    /// in quotes: `income:"<=50K"|">50K"`.
    ///
    /// `patient@3` is the column that says whose row it is. At most 3 rows of each person are kept, and
    /// prices are for all rows of a person.
    #[arg(long = "column", value_name = "COLUMN", required_unless_present = "schema")]
    columns: Vec<String>,
    /// File of TOML with more columns: `age = "18..99"`, `income = ["<=50K", ">50K"]`, `patient = "@3"`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    schema: Option<PathBuf>,
    /// The budget in epsilon. With --delta, the budget is the largest rho that keeps both.
    #[arg(long, value_name = "NUMBER")]
    epsilon: Option<f64>,
    /// The delta of an approximate budget.
    #[arg(long, value_name = "NUMBER", requires = "epsilon")]
    delta: Option<f64>,
    /// The budget in rho of zero-concentrated differential privacy.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["epsilon", "delta"])]
    rho: Option<f64>,
    #[command(flatten)]
    search: NameSearch,
    #[command(flatten, next_help_heading = "Connection")]
    server: Server,
}

/// A search for names.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names that nobody knows before")]
#[group(skip)]
struct NameSearch {
    /// A column whose names are to be found, such as `street:other*`. Repeat the flag for each.
    ///
    /// Rows of each name are counted with noise. Names with many rows become values of the column, and every
    /// other counts as `other`. Columns share price and delta.
    #[arg(long, value_name = "NAME", requires = "find_delta")]
    find: Vec<String>,
    /// Price of the search in epsilon, taken from the budget at once.
    #[arg(long, value_name = "NUMBER", conflicts_with = "find_rho", requires = "find")]
    find_epsilon: Option<f64>,
    /// Price of the search in rho, taken from a budget of rho at once.
    #[arg(long, value_name = "NUMBER", requires = "find")]
    find_rho: Option<f64>,
    /// Probability that a name is told which only one person has: at most 0.001. A budget of
    /// --epsilon and --delta contains it.
    #[arg(long, value_name = "NUMBER", requires = "find")]
    find_delta: Option<f64>,
}

impl NameSearch {
    fn wanted(self) -> Option<v1::PartitionSelection> {
        let Self { find: columns, find_epsilon, find_rho, find_delta } = self;
        let price = find_epsilon.map(partition_selection::Price::Epsilon);
        let price = price.or_else(|| find_rho.map(partition_selection::Price::Rho));
        let delta = find_delta.filter(|_| !columns.is_empty())?;
        Some(v1::PartitionSelection { columns, price, delta })
    }
}

impl Register {
    pub(super) fn tell(self) -> anyhow::Result<()> {
        use register_data_set_request::Budget;

        let Self { name, file, mut columns, schema, epsilon, delta, rho, search, server } = self;
        if let Some(schema) = schema {
            columns.extend(self::columns(&schema)?);
        }
        let budget = match (epsilon, delta, rho) {
            (Some(epsilon), Some(delta), _) => {
                Some(Budget::Approximate(v1::ApproximateBudget { epsilon, delta }))
            }
            (Some(epsilon), None, _) => Some(Budget::Epsilon(epsilon)),
            (None, _, rho) => rho.map(Budget::Rho),
        };
        let request = RegisterDataSetRequest { name, file, columns, budget, find: search.wanted() };
        let answer = server.call(async |mut curator| curator.register_data_set(request).await)?;
        let view = DataSetsView { data_sets: vec![answer.into()] };
        server.show(&view, DataSetsView::describe)
    }
}

/// The columns that a file of TOML declares, as `--column` has them.
fn columns(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the schema file {} can't be read", path.display()))?;
    let wrong = |what: String| Failure::Incomplete(format!("{}: {what}", path.display()));
    let table: Table = text.parse().map_err(|error| wrong(format!("it is no TOML: {error}")))?;
    let column = |(name, values): (&String, &Value)| {
        declared(name, values).ok_or_else(|| {
            wrong(format!(
                "column {name:?}: write its values as a text, such as \"18..99\", as a list of names, such \
                 as [\"Bonn\", \"Ulm\"], or, if it says whose row it is, \"@3\""
            ))
        })
    };
    Ok(table.iter().map(column).collect::<Result<_, _>>()?)
}

/// A column as it is written.
fn declared(name: &str, values: &Value) -> Option<String> {
    let name = quoted(name);
    match values {
        Value::String(people) if people.starts_with('@') => Some(format!("{name}{people}")),
        Value::String(values) => Some(format!("{name}:{values}")),
        Value::Array(names) => {
            let names: Option<Vec<_>> =
                names.iter().map(|name| Some(quoted(name.as_str()?))).collect();
            Some(format!("{name}:{}", names?.join("|")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bandana_mechanisms::queries::universe::Schema;

    use super::*;

    #[test]
    fn names_in_a_file_need_no_quotes_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schema.toml");
        let text = r#"
            age = "18..99?40"
            income = ["<=50K", ">50K", "a|b", "more*"]
            "a:b, c" = "no|yes"
            patient = "@3"
        "#;
        std::fs::write(&path, text).unwrap();
        let found = columns(&path).unwrap();
        let schema = Schema::declared(&found).unwrap();
        assert_eq!(schema.columns().len(), 4);
        assert!(schema.find("a:b, c").is_ok() && schema.find("age").unwrap().1.values() == 82);
        assert_eq!(schema.find("income").unwrap().1.code("<=50K"), Some(0));
        assert_eq!(schema.find("income").unwrap().1.code("more*"), Some(3));
        assert_eq!(schema.people().unwrap().1, 3);
        for (wrong, message) in
            [("age = 3", "column \"age\""), ("age = [1]", "such as"), ("age", "no TOML")]
        {
            std::fs::write(&path, wrong).unwrap();
            let error = columns(&path).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        assert!(columns(&folder.path().join("none")).is_err());
    }
}
