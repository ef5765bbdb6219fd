package ledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

func TestTombstonesRememberTheLast(t *testing.T) {
	const size = 5
	stones := newTombstones(size)
	uid := func(i int) types.UID { return types.UID(fmt.Sprint("pod-", i)) }
	for i := range 100 {
		stones.add(uid(i), uint64(i))
		for k := max(0, i-size+1); k <= i; k++ {
			version, gone := stones.at(uid(k))
			assert.True(t, gone, "pod %d is forgotten after %d", k, i)
			assert.Equal(t, uint64(k), version)
		}
		assert.False(t, stones.has(uid(i-2*size)), "pod %d is remembered after %d", i-2*size, i)
		assert.LessOrEqual(t, len(stones.recent)+len(stones.earlier), 2*size)
	}
	for i := range 100 {
		stones.forget(uid(i))
		assert.False(t, stones.has(uid(i)), "pod %d was forgotten", i)
	}
}
