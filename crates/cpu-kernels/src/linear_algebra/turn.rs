//! Transposes of parts of matrices.

use super::Scalar;
use crate::tiles::pack::turn_square;

/// Rows and columns of what is turned at once.
const SQUARE: usize = 16;

/// Writes `rows × columns` numbers, whose rows lie `from_row` apart, as so many columns of rows that lie `to_row` apart.
pub(super) fn turn<T: Scalar>(
    (from, from_row): (&[T], usize),
    [rows, columns]: [usize; 2],
    (to, to_row): (&mut [T], usize),
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!((rows - 1) * from_row + columns <= from.len(), "a short operand");
    assert!((columns - 1) * to_row + rows <= to.len(), "a short result");
    let square = turn_square().filter(|_| size_of::<T>() == 4);
    for r in (0..rows).step_by(SQUARE) {
        for c in (0..columns).step_by(SQUARE) {
            let (height, width) = (SQUARE.min(rows - r), SQUARE.min(columns - c));
            let (from, to) = (&from[r * from_row + c..], &mut to[c * to_row + r..]);
            match square {
                // SAFETY: the square is there, and so is the room for it, as asserted.
                Some(turn) => unsafe {
                    turn(from.as_ptr().cast(), from_row, [height, width], to.as_mut_ptr().cast(), to_row);
                },
                None => {
                    for r in 0..height {
                        (0..width).for_each(|c| to[c * to_row + r] = from[r * from_row + c]);
                    }
                }
            }
        }
    }
}
