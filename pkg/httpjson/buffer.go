package httpjson

import (
	"bytes"
	"sync"
)

// maxPooledBuffer is the size in bytes above which a buffer is left to the garbage collector, so
// that one huge request does not pin its memory for ever.
const maxPooledBuffer = 1 << 20

// bufferPool holds the *bytes.Buffer that bodies are read into and answers are built in.
type bufferPool struct{ pool sync.Pool }

// buffers serves the whole process: a pool is only worth its name when all handlers share it.
var buffers = bufferPool{pool: sync.Pool{New: func() any { return new(bytes.Buffer) }}}

func (p *bufferPool) get() *bytes.Buffer {
	return p.pool.Get().(*bytes.Buffer)
}

// put takes a buffer back; the caller must keep no slice of it.
func (p *bufferPool) put(b *bytes.Buffer) {
	if b.Cap() > maxPooledBuffer {
		return
	}
	b.Reset()
	p.pool.Put(b)
}
