//! The Parquet form of an export: one row group, without compression.

use std::sync::Arc;

use anyhow::Context as _;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::views::columns::{Cells, Column};

/// The columns as a Parquet file.
pub(super) fn parquet(columns: &[Column]) -> anyhow::Result<Vec<u8>> {
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("bandana").with_fields(fields).build()?;
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default())?;
    let mut rows = file.next_row_group()?;
    for column in columns {
        let mut writer = rows.next_column()?.context("the schema lacks a column")?;
        write(&mut writer, &column.cells)?;
        writer.close()?;
    }
    rows.close()?;
    Ok(file.into_inner()?)
}

fn field(column: &Column) -> parquet::errors::Result<TypePtr> {
    let required = Repetition::REQUIRED;
    let (physical, logical, repetition) = match column.cells {
        Cells::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), required),
        Cells::Flags(_) => (Physical::BOOLEAN, None, required),
        Cells::Days(_) => (Physical::INT32, Some(LogicalType::Date), required),
        Cells::Places(_) => (Physical::INT32, None, required),
        Cells::Counts(_) | Cells::Integers(_) => (Physical::INT64, None, required),
        Cells::Numbers(_) => (Physical::DOUBLE, None, required),
        Cells::Estimates(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition);
    field.build().map(Arc::new)
}

fn write(writer: &mut SerializedColumnWriter<'_>, cells: &Cells) -> anyhow::Result<()> {
    match cells {
        Cells::Text(cells) => {
            let texts: Vec<_> = cells.iter().map(|text| ByteArray::from(text.as_str())).collect();
            write_all::<ByteArrayType>(writer, &texts, None)
        }
        Cells::Flags(cells) => write_all::<BoolType>(writer, cells, None),
        Cells::Days(cells) => {
            let days =
                cells.iter().map(|day| i32::try_from(day.get())).collect::<Result<Vec<_>, _>>();
            write_all::<Int32Type>(writer, &days.context("a day that no calendar has")?, None)
        }
        Cells::Places(cells) => {
            let places =
                cells.iter().map(|&place| i32::try_from(place)).collect::<Result<Vec<_>, _>>();
            write_all::<Int32Type>(writer, &places.context("an arm beyond all limits")?, None)
        }
        Cells::Counts(cells) => {
            let counts =
                cells.iter().map(|&count| i64::try_from(count)).collect::<Result<Vec<_>, _>>();
            write_all::<Int64Type>(writer, &counts.context("a count beyond all limits")?, None)
        }
        Cells::Integers(cells) => write_all::<Int64Type>(writer, cells, None),
        Cells::Numbers(cells) => write_all::<DoubleType>(writer, cells, None),
        Cells::Estimates(cells) => {
            let present: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let numbers: Vec<f64> = cells.iter().copied().flatten().collect();
            write_all::<DoubleType>(writer, &numbers, Some(&present))
        }
    }
}

fn write_all<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> anyhow::Result<()> {
    writer.typed::<T>().write_batch(values, present, None)?;
    Ok(())
}
