package controlplane

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
)

// eventFilter is the body of a watch without the events that have a text in them.
type eventFilter struct {
	io.Closer
	reader *bufio.Reader
	hidden func() string
	next   func(*bufio.Reader) ([]byte, error)
	rest   []byte // of the event that is being read
}

func newEventFilter(response *http.Response, hidden func() string) *eventFilter {
	f := &eventFilter{Closer: response.Body, reader: bufio.NewReader(response.Body), hidden: hidden, next: nextLine}
	if strings.HasPrefix(response.Header.Get("Content-Type"), protobufContentType) {
		f.next = nextFrame
	}
	return f
}

// Read implements io.Reader.
func (f *eventFilter) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		event, err := f.next(f.reader)
		if err != nil {
			return 0, err
		}
		if hidden := f.hidden(); hidden == "" || !bytes.Contains(event, []byte(hidden)) {
			f.rest = event
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// nextLine is an event in JSON.
func nextLine(r *bufio.Reader) ([]byte, error) { return r.ReadBytes('\n') }

// nextFrame is an event in protobuf, after its length.
func nextFrame(r *bufio.Reader) ([]byte, error) {
	const lengthBytes = 4
	length, err := r.Peek(lengthBytes)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, lengthBytes+binary.BigEndian.Uint32(length))
	_, err = io.ReadFull(r, frame)
	return frame, err
}
