package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// message is one server-sent event. A comment, which the server sends as a sign of
// life, is one named heartbeat without data.
type message struct {
	name, id string
	data     []byte
}

// messages reads server-sent events, as far as GlobalReserve uses the format: an id is
// that of its own event alone.
type messages struct {
	lines *bufio.Scanner
	limit int // of an event in bytes
}

func newMessages(r io.Reader, limit int) *messages {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 32<<10), limit)
	return &messages{lines: lines, limit: limit}
}

// next returns the next event. One that is cut off is none.
func (m *messages) next() (message, error) {
	var event message
	for left := m.limit; ; {
		if !m.lines.Scan() || len(m.lines.Bytes()) > left {
			return message{}, m.failed()
		}
		line := m.lines.Bytes()
		left -= len(line)
		if len(line) == 0 {
			if event.name != "" {
				return event, nil
			}
			continue // the end of a comment
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "":
			if event.name == "" {
				return message{name: string(reserver.HeartbeatEvent)}, nil
			}
		case "event":
			event.name = string(value)
		case "id":
			event.id = string(value)
		case "data":
			if event.data != nil {
				event.data = append(event.data, '\n')
			}
			event.data = append(event.data, value...)
		}
	}
}

// failed is why there are no more lines.
func (m *messages) failed() error {
	switch err := m.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong), err == nil && len(m.lines.Bytes()) > 0:
		return fmt.Errorf("an event of the watch is longer than %d bytes", m.limit)
	case err == nil:
		return errors.New("the server ended the watch")
	default:
		return fmt.Errorf("reading the watch: %w", err)
	}
}
