module raybroker/tests/amqp_clients

go 1.18

require github.com/Azure/go-amqp v1.0.5
