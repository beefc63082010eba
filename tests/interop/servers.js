'use strict';
// The addresses of a cluster as a client comes to know them: given one, then what brokers say in open and in redirects.

const REDIRECT = 'amqp:connection:redirect';

class Servers {
    constructor(first) {
        this.known = [first];
        this.waiting = [];
        this.last = undefined;
    }

    // For rhea's connection_details option: called for every attempt to connect.
    next() {
        if (this.waiting.length === 0) this.waiting = this.known.slice();
        this.last = this.waiting.shift();
        return Object.assign({transport: 'tcp'}, this.last);
    }

    // What the open of a broker says.
    opened(connection) {
        const list = (connection.properties || {})['failover-server-list'] || [];
        if (list.length > 0) {
            this.known = list.map(server => ({host: server['network-host'], port: server.port}));
        }
    }

    // What the close of a broker says: the one that a redirect names is the next.
    closed(error) {
        const target = redirect_target(error);
        if (target) this.waiting.unshift(target);
    }
}

function redirect_target(error) {
    if (!error || error.condition !== REDIRECT || !error.info) return undefined;
    return {host: error.info['network-host'], port: error.info.port};
}

function say(event) {
    process.stdout.write(JSON.stringify(event) + '\n');
}

// A container whose connection goes on until it is closed, whoever is the primary.
function connect(rhea, address) {
    const [host, port] = address.split(':');
    const servers = new Servers({host: host, port: Number(port)});
    const container = rhea.create_container();
    container.on('connection_open', context => {
        servers.opened(context.connection);
        say({event: 'open', port: servers.last.port, servers: servers.known.map(server => server.port)});
    });
    container.on('connection_error', context => {
        const error = context.connection.remote.close && context.connection.remote.close.error;
        const target = redirect_target(error);
        servers.closed(error);
        say({event: 'closed', condition: error && error.condition, target: target && target.port});
    });
    container.on('connection_close', () => {});
    container.on('disconnected', context => say({event: 'disconnected', reconnecting: Boolean(context.reconnecting)}));
    const connection = container.connect({
        connection_details: () => servers.next(),
        initial_reconnect_delay: 10,
        max_reconnect_delay: 100,
        idle_time_out: 2000,
        non_fatal_errors: ['amqp:connection:forced', REDIRECT],
    });
    return {container, connection, servers};
}

module.exports = {connect, redirect_target, say};
