package devices

import "math/bits"

// Set is some of a pool's devices: bit i of it is the pool's device i. Make one with Pool.NewSet; sets
// of different pools do not mix.
type Set []uint64

// Has reports whether device i is in the set.
func (s Set) Has(i int) bool { return s[i>>6]>>(i&63)&1 != 0 }

// Add puts device i into the set.
func (s Set) Add(i int) { s[i>>6] |= 1 << (i & 63) }

// Remove takes device i out of the set.
func (s Set) Remove(i int) { s[i>>6] &^= 1 << (i & 63) }

// Len returns how many devices are in the set.
func (s Set) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// firstCommon returns the first device that is in a and in b, or not in b where invert is all ones.
func firstCommon(a, b Set, invert uint64) (int, bool) {
	for w := range a {
		if both := a[w] & (b[w] ^ invert); both != 0 {
			return w<<6 + bits.TrailingZeros64(both), true
		}
	}
	return 0, false
}

// LenCommon returns how many devices are in both sets.
func (s Set) LenCommon(o Set) (n int) {
	for w := range s {
		n += bits.OnesCount64(s[w] & o[w])
	}
	return n
}
