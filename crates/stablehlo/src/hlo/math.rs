//! Functions that HLO has no operation for: the complement and the inverse of erf, and the Bessel function I1.
//!
//! The coefficients are those of Cephes (Moshier) and of Giles' "Approximating the erfinv function". Everything is
//! computed in the type of the operand, f32 or f64.

#![allow(clippy::excessive_precision, reason = "coefficients are given as they were published")]

use super::{Translate, Translator};
use hloom_ir::ElementType;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, UnaryOp};

/// exp(-x) I1(x) / x on [0, 8] in single precision, in Chebyshev polynomials (Cephes): the leading terms of those in
/// double precision.
const I1E_SMALL_F32: &[f64] = I1E_SMALL_F64.split_at(12).1;

/// exp(-x) sqrt(x) I1(x) beyond 8 in single precision (Cephes).
const I1E_LARGE_F32: &[f64] = &[
    -3.83538038596423702205e-9,
    -2.63146884688951950684e-8,
    -2.51223623787020892529e-7,
    -3.88256480887769039346e-6,
    -1.10588938762623716291e-4,
    -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
];

/// exp(-x) I1(x) / x on [0, 8] in double precision, the term of the highest order first (Cephes).
const I1E_SMALL_F64: &[f64] = &[
    2.77791411276104639959e-18,
    -2.11142121435816608115e-17,
    1.55363195773620046921e-16,
    -1.10559694773538630805e-15,
    7.60068429473540693410e-15,
    -5.04218550472791168711e-14,
    3.22379336594557470981e-13,
    -1.98397439776494371520e-12,
    1.17361862988909016308e-11,
    -6.66348972350202774223e-11,
    3.62559028155211703701e-10,
    -1.88724975172282928790e-9,
    9.38153738649577178388e-9,
    -4.44505912879632808065e-8,
    2.00329475355213526229e-7,
    -8.56872026469545474066e-7,
    3.47025130813767847674e-6,
    -1.32731636560394358279e-5,
    4.78156510755005422638e-5,
    -1.61760815825896745588e-4,
    5.12285956168575772895e-4,
    -1.51357245063125314899e-3,
    4.15642294431288815669e-3,
    -1.05640848946261981558e-2,
    2.47264490306265168283e-2,
    -5.29459812080949914269e-2,
    1.02643658689847095384e-1,
    -1.76416518357834055153e-1,
    2.52587186443633654823e-1,
];

/// As [`I1E_LARGE_F32`] in double precision.
const I1E_LARGE_F64: &[f64] = &[
    7.51729631084210481353e-18,
    4.41434832307170791151e-18,
    -4.65030536848935832153e-17,
    -3.20952592199342395980e-17,
    2.96262899764595013876e-16,
    3.30820231092092828324e-16,
    -1.88035477551078244854e-15,
    -3.81440307243700780478e-15,
    1.04202769841288027642e-14,
    4.27244001671195135429e-14,
    -2.10154184277266431302e-14,
    -4.08355111109219731823e-13,
    -7.19855177624590851209e-13,
    2.03562854414708950722e-12,
    1.41258074366137813316e-11,
    3.25260358301548823856e-11,
    -1.89749581235054123450e-11,
    -5.58974346219658380687e-10,
    -3.83538038596423702205e-9,
    -2.63146884688951950684e-8,
    -2.51223623787020892529e-7,
    -3.88256480887769039346e-6,
    -1.10588938762623716291e-4,
    -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
];

/// erfc between 1 and 8 in double precision: numerator (Cephes).
const ERFC_P_F64: &[f64] = &[
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687e0,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
];

/// Its denominator.
const ERFC_Q_F64: &[f64] = &[
    1.00000000000000000000e0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
];

/// erfc beyond 8: numerator.
const ERFC_R_F64: &[f64] = &[
    5.64189583547755073984e-1,
    1.27536670759978104416e0,
    5.01905042251180477414e0,
    6.16021097993053585195e0,
    7.40974269950448939160e0,
    2.97886665372100240670e0,
];

/// Its denominator.
const ERFC_S_F64: &[f64] = &[
    1.00000000000000000000e0,
    2.26052863220117276590e0,
    9.39603524938001434673e0,
    1.20489539808096656605e1,
    1.70814450747565897222e1,
    9.60896809063285878198e0,
    3.36907645100081516050e0,
];

/// erf below 1: numerator.
const ERF_T_F64: &[f64] = &[
    9.60497373987051638749e0,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
];

/// Its denominator.
const ERF_U_F64: &[f64] = &[
    1.00000000000000000000e0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
];

/// erfc between 1 and 2 in single precision, in 1/x².
const ERFC_P_F32: &[f64] = &[
    2.326819970068386e-2,
    -1.387039388740657e-1,
    3.687424674597105e-1,
    -5.824733027278666e-1,
    6.210004621745983e-1,
    -4.944515323274145e-1,
    3.404879937665872e-1,
    -2.741127028184656e-1,
    5.638259427386472e-1,
];

/// erfc beyond 2 in single precision, in 1/x².
const ERFC_R_F32: &[f64] = &[
    -1.047766399936249e+1,
    1.297719955372516e+1,
    -7.495518717768503e+0,
    2.921019019210786e+0,
    -1.015265279202700e+0,
    4.218463358204948e-1,
    -2.820767439740514e-1,
    5.641895067754075e-1,
];

/// erf below 1 in single precision, in x².
const ERF_T_F32: &[f64] = &[
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.761262582423300e-1,
    1.128379165726710e+0,
];

/// The inverse of erf (Giles), w < 5.
const ERF_INV_SMALL_F32: &[f64] = &[
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
];

/// The inverse of erf, w ≥ 5.
const ERF_INV_LARGE_F32: &[f64] = &[
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
];

/// The inverse of erf in double precision (Giles), w < 6.25.
const ERF_INV_SMALL_F64: &[f64] = &[
    -3.6444120640178196996e-21,
    -1.685059138182016589e-19,
    1.2858480715256400167e-18,
    1.115787767802518096e-17,
    -1.333171662854620906e-16,
    2.0972767875968561637e-17,
    6.6376381343583238325e-15,
    -4.0545662729752068639e-14,
    -8.1519341976054721522e-14,
    2.6335093153082322977e-12,
    -1.2975133253453532498e-11,
    -5.4154120542946279317e-11,
    1.051212273321532285e-09,
    -4.1126339803469836976e-09,
    -2.9070369957882005086e-08,
    4.2347877827932403518e-07,
    -1.3654692000834678645e-06,
    -1.3882523362786468719e-05,
    0.0001867342080340571352,
    -0.00074070253416626697512,
    -0.0060336708714301490533,
    0.24015818242558961693,
    1.6536545626831027356,
];

/// The same, w < 16.
const ERF_INV_MIDDLE_F64: &[f64] = &[
    2.2137376921775787049e-09,
    9.0756561938885390979e-08,
    -2.7517406297064545428e-07,
    1.8239629214389227755e-08,
    1.5027403968909827627e-06,
    -4.013867526981545969e-06,
    2.9234449089955446044e-06,
    1.2475304481671778723e-05,
    -4.7318229009055733981e-05,
    6.8284851459573175448e-05,
    2.4031110387097893999e-05,
    -0.0003550375203628474796,
    0.00095328937973738049703,
    -0.0016882755560235047313,
    0.0024914420961078508066,
    -0.0037512085075692412107,
    0.005370914553590063617,
    1.0052589676941592334,
    3.0838856104922207635,
];

/// The same beyond.
const ERF_INV_LARGE_F64: &[f64] = &[
    -2.7109920616438573243e-11,
    -2.5556418169965252055e-10,
    1.5076572693500548083e-09,
    -3.7894654401267369937e-09,
    7.6157012080783393804e-09,
    -1.4960026627149240478e-08,
    2.9147953450901080826e-08,
    -6.7711997758452339498e-08,
    2.2900482228026654717e-07,
    -9.9298272942317002539e-07,
    4.5260625972231537039e-06,
    -1.9681778105531670567e-05,
    7.5995277030017761139e-05,
    -0.00021503011930044477347,
    -0.00013871931833623122026,
    1.0103004648645343977,
    4.8499064014085844221,
];

/// Beyond this exp(-x²) is 0, in double precision.
const MAX_LOG_F64: f64 = 7.09782712893383996843e2;
/// The same in single precision.
const MAX_LOG_F32: f64 = 88.72283905206835;

impl Translator<'_, '_> {
    pub(super) fn is_f64(&self, x: InstructionId) -> bool {
        self.shape(x).element_type() == Some(ElementType::F64)
    }

    pub(super) fn add(&mut self, x: InstructionId, y: InstructionId) -> Translate<InstructionId> {
        self.bin(BinaryOp::Add, x, y)
    }

    pub(super) fn sub(&mut self, x: InstructionId, y: InstructionId) -> Translate<InstructionId> {
        self.bin(BinaryOp::Subtract, x, y)
    }

    pub(super) fn mul(&mut self, x: InstructionId, y: InstructionId) -> Translate<InstructionId> {
        self.bin(BinaryOp::Multiply, x, y)
    }

    pub(super) fn div(&mut self, x: InstructionId, y: InstructionId) -> Translate<InstructionId> {
        self.bin(BinaryOp::Divide, x, y)
    }

    /// `x` less than, equal to, … a number.
    pub(super) fn cmp_number(
        &mut self,
        direction: ComparisonDirection,
        x: InstructionId,
        number: f64,
    ) -> Translate<InstructionId> {
        let number = self.number_like(x, number)?;
        self.cmp(direction, x, number)
    }

    /// A polynomial in `x`, the highest power first.
    fn polynomial(&mut self, x: InstructionId, coefficients: &[f64]) -> Translate<InstructionId> {
        let mut sum = self.number_like(x, coefficients.first().copied().unwrap_or(0.0))?;
        for &c in coefficients.iter().skip(1) {
            let product = self.mul(sum, x)?;
            let c = self.number_like(x, c)?;
            sum = self.add(product, c)?;
        }
        Ok(sum)
    }

    /// A series of Chebyshev polynomials in `x / 2`, the highest first, by Clenshaw's recurrence.
    fn chebyshev(&mut self, x: InstructionId, coefficients: &[f64]) -> Translate<InstructionId> {
        let zero = self.number_like(x, 0.0)?;
        let (mut b0, mut b1, mut b2) = (zero, zero, zero);
        for &c in coefficients {
            b2 = b1;
            b1 = b0;
            let product = self.mul(x, b1)?;
            let difference = self.sub(product, b2)?;
            let c = self.number_like(x, c)?;
            b0 = self.add(difference, c)?;
        }
        let difference = self.sub(b0, b2)?;
        let half = self.number_like(x, 0.5)?;
        self.mul(difference, half)
    }

    /// erf where |x| ≤ 1.
    fn erf_small(&mut self, x: InstructionId) -> Translate<InstructionId> {
        let square = self.mul(x, x)?;
        if self.is_f64(x) {
            let p = self.polynomial(square, ERF_T_F64)?;
            let q = self.polynomial(square, ERF_U_F64)?;
            let product = self.mul(x, p)?;
            return self.div(product, q);
        }
        let p = self.polynomial(square, ERF_T_F32)?;
        self.mul(x, p)
    }

    /// erfc where |x| ≥ 1.
    fn erfc_large(&mut self, x: InstructionId) -> Translate<InstructionId> {
        let wide = self.is_f64(x);
        let square = self.mul(x, x)?;
        let z = self.un(UnaryOp::Negate, square)?;
        let exponential = self.un(UnaryOp::Exponential, z)?;
        let magnitude = self.un(UnaryOp::Abs, x)?;
        let y = if wide {
            let near = self.cmp_number(ComparisonDirection::Lt, magnitude, 8.0)?;
            let (p, q) = (self.polynomial(magnitude, ERFC_P_F64)?, self.polynomial(magnitude, ERFC_Q_F64)?);
            let (r, s) = (self.polynomial(magnitude, ERFC_R_F64)?, self.polynomial(magnitude, ERFC_S_F64)?);
            let near_product = self.mul(exponential, p)?;
            let far_product = self.mul(exponential, r)?;
            let (a, b) = (self.div(near_product, q)?, self.div(far_product, s)?);
            self.sel(near, a, b)?
        } else {
            let one = self.number_like(x, 1.0)?;
            let inverse_square = self.div(one, square)?;
            let near = self.cmp_number(ComparisonDirection::Lt, magnitude, 2.0)?;
            let p = self.polynomial(inverse_square, ERFC_P_F32)?;
            let r = self.polynomial(inverse_square, ERFC_R_F32)?;
            let p = self.sel(near, p, r)?;
            let inverse = self.div(one, magnitude)?;
            let scaled = self.mul(exponential, inverse)?;
            self.mul(scaled, p)?
        };
        let limit = if wide { -MAX_LOG_F64 } else { -MAX_LOG_F32 };
        let vanished = self.cmp_number(ComparisonDirection::Lt, z, limit)?;
        let zero = self.number_like(x, 0.0)?;
        let y = self.sel(vanished, zero, y)?;
        let two = self.number_like(x, 2.0)?;
        let mirrored = self.sub(two, y)?;
        let negative = self.cmp_number(ComparisonDirection::Lt, x, 0.0)?;
        self.sel(negative, mirrored, y)
    }

    /// The complement of erf.
    pub(super) fn erfc(&mut self, x: InstructionId) -> Translate<InstructionId> {
        let large = self.erfc_large(x)?;
        let small = self.erf_small(x)?;
        let one = self.number_like(x, 1.0)?;
        let small = self.sub(one, small)?;
        let magnitude = self.un(UnaryOp::Abs, x)?;
        let is_small = self.cmp(ComparisonDirection::Lt, magnitude, one)?;
        self.sel(is_small, small, large)
    }

    /// The inverse of erf.
    pub(super) fn erf_inv(&mut self, x: InstructionId) -> Translate<InstructionId> {
        let wide = self.is_f64(x);
        let minus = self.un(UnaryOp::Negate, x)?;
        let product = self.mul(x, minus)?;
        let log = self.un(UnaryOp::LogPlusOne, product)?;
        let w = self.un(UnaryOp::Negate, log)?;
        let root = self.un(UnaryOp::Sqrt, w)?;
        let shifted = |t: &mut Self, x: InstructionId, by: f64| {
            let by = t.number_like(x, by)?;
            t.sub(x, by)
        };
        let p = if wide {
            let near = shifted(self, w, 3.125)?;
            let middle = shifted(self, root, 3.25)?;
            let far = shifted(self, root, 5.0)?;
            let near = self.polynomial(near, ERF_INV_SMALL_F64)?;
            let middle = self.polynomial(middle, ERF_INV_MIDDLE_F64)?;
            let far = self.polynomial(far, ERF_INV_LARGE_F64)?;
            let is_middle = self.cmp_number(ComparisonDirection::Lt, w, 16.0)?;
            let beyond = self.sel(is_middle, middle, far)?;
            let is_near = self.cmp_number(ComparisonDirection::Lt, w, 6.25)?;
            self.sel(is_near, near, beyond)?
        } else {
            let near = shifted(self, w, 2.5)?;
            let far = shifted(self, root, 3.0)?;
            let near = self.polynomial(near, ERF_INV_SMALL_F32)?;
            let far = self.polynomial(far, ERF_INV_LARGE_F32)?;
            let is_near = self.cmp_number(ComparisonDirection::Lt, w, 5.0)?;
            self.sel(is_near, near, far)?
        };
        let result = self.mul(p, x)?;
        let magnitude = self.un(UnaryOp::Abs, x)?;
        let at_end = self.cmp_number(ComparisonDirection::Eq, magnitude, 1.0)?;
        let infinity = self.number_like(x, f64::INFINITY)?;
        let infinity = self.mul(infinity, x)?;
        self.sel(at_end, infinity, result)
    }

    /// exp(-|x|) I1(x).
    pub(super) fn bessel_i1e(&mut self, x: InstructionId) -> Translate<InstructionId> {
        let (small, large) =
            if self.is_f64(x) { (I1E_SMALL_F64, I1E_LARGE_F64) } else { (I1E_SMALL_F32, I1E_LARGE_F32) };
        let z = self.un(UnaryOp::Abs, x)?;
        let half = self.number_like(x, 0.5)?;
        let two = self.number_like(x, 2.0)?;
        let scaled = self.mul(half, z)?;
        let near_at = self.sub(scaled, two)?;
        let near = self.chebyshev(near_at, small)?;
        let near = self.mul(near, z)?;
        let c = self.number_like(x, 32.0)?;
        let quotient = self.div(c, z)?;
        let far_at = self.sub(quotient, two)?;
        let far = self.chebyshev(far_at, large)?;
        let root = self.un(UnaryOp::Sqrt, z)?;
        let far = self.div(far, root)?;
        let is_near = self.cmp_number(ComparisonDirection::Le, z, 8.0)?;
        let y = self.sel(is_near, near, far)?;
        let sign = self.un(UnaryOp::Sign, x)?;
        self.mul(sign, y)
    }
}
