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

// messages reads server-sent events, as far as GlobalReserve uses the format: lines
// end with a line feed, and an id is that of its own event alone.
type messages struct {
	reader *bufio.Reader
	limit  int64
}

func newMessages(r io.Reader, limit int64) *messages {
	return &messages{reader: bufio.NewReaderSize(r, 32<<10), limit: limit}
}

// next returns the next event. One that is cut off is none.
func (m *messages) next() (message, error) {
	var event message
	for left := m.limit; ; {
		line, err := m.line(left)
		if err != nil {
			return message{}, err
		}
		left -= int64(len(line))
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

// line returns a line without its end, of at most limit bytes.
func (m *messages) line(limit int64) ([]byte, error) {
	var line []byte
	for {
		part, err := m.reader.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case int64(len(line)) > limit:
			return nil, fmt.Errorf("an event of the watch is longer than %d bytes", m.limit)
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, errors.New("the server ended the watch")
		default:
			return nil, fmt.Errorf("reading the watch: %w", err)
		}
	}
}
